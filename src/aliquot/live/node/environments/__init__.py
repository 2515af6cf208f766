"""Environments: each set of requirements is installed once, within limits, and shared by functions."""
