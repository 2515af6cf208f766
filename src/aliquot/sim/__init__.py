"""The simulator: a shell that runs the core in virtual time."""
