"""An origin for datasets, in a process of its own and behind a link like a NAS's, for tests and measurements."""
