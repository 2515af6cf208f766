"""Test helpers for Aliquot and for code built on it: builders, a scheduler harness, fakes and a live server."""

from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness

__all__ = ["Harness", "device", "function"]
