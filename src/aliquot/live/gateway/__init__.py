"""The HTTP side. It speaks Apache OpenWhisk."""
