"""The policies: one algorithm per file, and one table per kind. They read a view and decide, without side effects."""
