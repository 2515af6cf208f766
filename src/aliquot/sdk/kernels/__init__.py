"""Kernel graphs of an app: built in Python, run here on the local device, or called on the platform."""
