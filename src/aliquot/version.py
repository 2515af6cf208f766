"""The version of Aliquot."""

__version__ = "0.1.0"
