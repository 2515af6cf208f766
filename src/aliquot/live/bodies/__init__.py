"""Request and result bodies: large ones in shared memory, and the process that checks their JSON."""
