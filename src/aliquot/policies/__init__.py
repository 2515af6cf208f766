"""The algorithms, one a file, one visible table a kind. They look at a view and decide; they perform nothing."""
