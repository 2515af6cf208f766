"""The command line `aliquot`. Begin with `aliquot --help`."""

from aliquot.cli.app import main

__all__ = ["main"]
