"""One machine: its devices and the sandboxes on them."""
