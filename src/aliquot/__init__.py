"""Aliquot: serverless functions on shared GPUs. docs/architecture.md explains the code.

User files import this package, locally and in the sandbox. It therefore imports nothing but the standard library.
"""

from aliquot.sdk import App, Function, Handle, Session
from aliquot.version import __version__

__all__ = ["App", "Function", "Handle", "Session", "__version__"]
