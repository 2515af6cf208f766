"""The simulator: a shell that drives the core in virtual time."""
