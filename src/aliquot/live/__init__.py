"""The live shell: all I/O. It feeds the core with what happens and performs what the core commands."""
