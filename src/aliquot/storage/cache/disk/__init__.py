"""The cache's disk: `directory` with its index, and `files` with their chunks."""
