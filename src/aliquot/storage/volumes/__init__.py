"""Volumes: writable folders that outlive sandboxes, with a size that every write is checked against."""
