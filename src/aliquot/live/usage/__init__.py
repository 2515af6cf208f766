"""What sandboxes use of accelerators: looked at every 10 ms, kept in a file of bounded size, and read back."""
