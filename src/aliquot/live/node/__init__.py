"""A node: one machine with its devices and the sandboxes on them."""
