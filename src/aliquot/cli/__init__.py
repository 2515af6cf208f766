"""The command line: `aliquot --help` is where people begin."""

from aliquot.cli.app import main

__all__ = ["main"]
