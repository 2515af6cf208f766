"""Aliquot: serverless functions on shared GPUs. See docs/architecture.md for a way through the house.

`import aliquot` is what a user's file begins with, here and in the sandbox: it brings in the standard library alone.
"""

from aliquot.sdk import App, Function, Handle, Session
from aliquot.version import __version__

__all__ = ["App", "Function", "Handle", "Session", "__version__"]
