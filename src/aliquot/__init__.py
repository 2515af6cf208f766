"""Aliquot: serverless functions on shared GPUs. See docs/architecture.md for a way through the house."""

__version__ = "0.1.0"
