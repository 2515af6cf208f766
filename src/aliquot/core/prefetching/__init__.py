"""Prefetching of files: which audience is expected to open which files, and which fetches are in flight."""
