"""Code of functions on the node's disk, by digest, so that the head sends each only once."""

import os
from hashlib import sha256
from pathlib import Path

import structlog

from aliquot.core.units import GIB

log = structlog.get_logger("aliquot.node_agent")

MAX_BYTES = 2 * GIB


class CodeStore:
    """A folder with a file for each code. The files that were not used for longest are removed at the start."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_old(max_bytes)

    def get(self, digest: str) -> str | None:
        """Return the code with this digest, or None. A file that is damaged is as good as none."""
        file = self._folder / digest
        try:
            body = file.read_bytes()
            if sha256(body).hexdigest() != digest:
                file.unlink()
                return None
            os.utime(file)
            return body.decode()
        except (OSError, UnicodeDecodeError):
            return None

    def add(self, digest: str, body: bytes) -> None:
        """Store code that the head has sent. A disk that is full costs another transfer, no more."""
        draft = self._folder / f".{digest}"
        try:
            draft.write_bytes(body)
            draft.replace(self._folder / digest)
        except OSError as error:
            log.warning("code could not be stored", error=str(error))

    def _remove_old(self, max_bytes: int) -> None:
        found = []
        for file in self._folder.iterdir():
            stat = file.stat()
            found.append((stat.st_mtime, stat.st_size, file))
        total = sum(size for _, size, _ in found)
        for _, size, file in sorted(found):
            if total <= max_bytes and not file.name.startswith("."):
                continue
            file.unlink(missing_ok=True)
            total -= size
