"""The usage of accelerators by sandboxes: sampled every 10 ms, kept in a file of bounded size, and read back."""
