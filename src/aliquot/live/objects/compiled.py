"""Compiled code of kernel graphs: an archive for each graph, in a folder for each namespace.

It only saves time: what is missing is compiled again. Archives are written by native code of their tenants, and are
read only by sandboxes of the same tenant.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from aliquot.durable_files import remove_directory

MAX_ARCHIVES = 64  # of a namespace; beyond it the oldest go


class CompiledGraphs:
    """The folder with the archives of all namespaces."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, folder: str, code: str) -> Path:
        """Return the place of a graph's archive, which may not exist."""
        return self._folder / folder / hashlib.sha256(code.encode()).hexdigest()

    def keep(self, folder: str, code: str, archive: bytes | memoryview) -> None:
        """Store the archive of a graph. Blocks."""
        path = self.path(folder, code)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(descriptor, "wb") as file:
            file.write(archive)
        Path(name).replace(path)
        kept = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in kept[:-MAX_ARCHIVES]:
            old.unlink(missing_ok=True)

    def delete_all(self, folder: str) -> None:
        remove_directory(self._folder / folder)
