"""Execution of kernel graphs on a backend."""
