"""An HTTP origin for datasets, in a process of its own behind a link like a NAS's, for benchmarks and tests."""
