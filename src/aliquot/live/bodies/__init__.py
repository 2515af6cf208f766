"""Request and result bodies: memory for large ones, and the process that checks their JSON."""
