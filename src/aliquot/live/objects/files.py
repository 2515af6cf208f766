"""The files of blobs: bytes named by their SHA-256, in a folder for each namespace.

    objects/NAMESPACE/DIGEST     a blob; NAMESPACE is a hash of the namespace's name
    objects/incoming/            files that are being received, which a restart removes

A file gets its name only when it is whole and on disk.
"""

import hashlib
import mmap
import os
import shutil
import tempfile
from pathlib import Path

from aliquot.durable_files import remove_directory, sync_directory

_INCOMING = "incoming"


class IncomingFile:
    """A file that is being received. Its digest is computed on the way."""

    def __init__(self, folder: Path) -> None:
        descriptor, name = tempfile.mkstemp(dir=folder)
        self._file = os.fdopen(descriptor, "wb")
        self.path = Path(name)
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """Wait until the disk has the file, and return its digest. Blocks."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._digest.hexdigest()

    def discard(self) -> None:
        """Delete the file, unless it has been moved."""
        self._file.close()
        self.path.unlink(missing_ok=True)


class BlobFiles:
    """The folder with the blobs of all namespaces."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> dict[str, dict[str, tuple[int, float]]]:
        """Remove what was being received, and return size and time of each blob by folder and digest. Blocks."""
        shutil.rmtree(self._folder / _INCOMING, ignore_errors=True)
        (self._folder / _INCOMING).mkdir(mode=0o700, parents=True)
        found: dict[str, dict[str, tuple[int, float]]] = {}
        for folder in self._folder.iterdir():
            if folder.name != _INCOMING and folder.is_dir():
                about = {file.name: file.stat() for file in folder.iterdir()}
                found[folder.name] = {name: (stat.st_size, stat.st_mtime) for name, stat in about.items()}
        return found

    def receive(self) -> IncomingFile:
        return IncomingFile(self._folder / _INCOMING)

    def keep(self, file: IncomingFile, namespace: str, digest: str) -> None:
        """Give a received file its name. Blocks."""
        path = self.path(namespace, digest)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        file.path.replace(path)
        sync_directory(path.parent)

    def path(self, namespace: str, digest: str) -> Path:
        return self._folder / folder_name(namespace) / digest

    def read(self, namespace: str, digest: str) -> memoryview:
        """Return the bytes of a blob without reading them yet. Raises `OSError`."""
        with self.path(namespace, digest).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))

    def delete(self, namespace: str, digest: str) -> None:
        self.path(namespace, digest).unlink(missing_ok=True)

    def delete_all(self, namespace: str) -> None:
        remove_directory(self._folder / folder_name(namespace))


def folder_name(namespace: str) -> str:
    """Return the name of a namespace's folder. Names of namespaces may hold what names of files may not."""
    return hashlib.sha256(namespace.encode()).hexdigest()[:32]
