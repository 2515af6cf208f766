"""Devices and how their parts are enforced: one driver a file."""
