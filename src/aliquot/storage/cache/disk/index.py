"""The index of the cache's directory: one line of JSON for each whole file."""

import errno
import os
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from time import time_ns

import msgspec

from aliquot.storage.cache.disk.files import DIGEST_BYTES, CacheFile, file_of
from aliquot.storage.cache.transfers.entry import CacheEntry, SavedState
from aliquot.storage.records import FileKey, Listed

_SPARE_LINES = 1000


class IndexLine(msgspec.Struct, frozen=True):
    """A whole file as the index describes it."""

    name: str  # of the file below `files/`
    dataset: str
    listed: Listed
    origin: str
    chunk_bytes: int
    digests: bytes  # of all chunks, concatenated
    disk_bytes: int
    reload_s: float
    uses: int
    boot: str  # id of the machine's boot during which the file was written or checked

    @property
    def key(self) -> FileKey:
        return FileKey(self.dataset, self.listed.path)


class CacheIndex:
    """Appends a line for each new file, and is rewritten when most lines describe removed files.

    Not thread-safe: the caller holds the cache's lock.
    """

    def __init__(self, directory: Path, boot: str) -> None:
        self._directory = directory
        self._path = directory / "index"
        self._boot = boot
        self._numbers = count(time_ns())
        self._fd = -1
        self._lines = 0

    def read(self) -> Iterator[IndexLine]:
        for unfinished in self._directory.glob("index-*"):
            unfinished.unlink()
        if not self._path.exists():
            return
        decoder = msgspec.json.Decoder(IndexLine)
        for text in self._path.read_bytes().splitlines():
            try:
                line = decoder.decode(text)
            except msgspec.MsgspecError:  # a crash cut the line off, so its file never got its place
                continue
            yield line

    def append(self, entry: CacheEntry, name: str) -> None:
        if self._fd < 0 or os.fstat(self._fd).st_nlink == 0:  # the directory was deleted
            self.close()
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        line, size = _encode(entry, name, self._boot), os.fstat(self._fd).st_size
        if os.write(self._fd, line) != len(line):
            os.ftruncate(self._fd, size)  # otherwise the next line would continue this one
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._lines += 1

    def is_outdated(self, files: int) -> bool:
        """Return whether most lines describe removed files."""
        return self._lines > 2 * files + _SPARE_LINES

    def rewrite(self, entries: Iterable[CacheEntry]) -> None:
        """Replace the index by one with a line for each whole entry, in this order."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [_encode(entry, file_of(entry).path.name, self._boot) for entry in entries if entry.whole]
        fresh = self._directory / f"index-{next(self._numbers):x}"
        try:
            fresh.write_bytes(b"".join(lines))
            fresh.rename(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self.close()
        self._lines = len(lines)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _encode(entry: CacheEntry, name: str, boot: str) -> bytes:
    line = IndexLine(
        name=name,
        dataset=entry.key.dataset,
        listed=entry.listed,
        origin=entry.origin,
        chunk_bytes=entry.chunk_bytes,
        digests=b"".join(entry.digests[chunk] for chunk in range(entry.chunk_count)),
        disk_bytes=entry.disk_bytes,
        reload_s=entry.reload_s,
        uses=entry.opens,
        boot=boot if entry.trusted else "",
    )
    return msgspec.json.encode(line) + b"\n"


def entry_from(line: IndexLine, path: Path, boot: str) -> CacheEntry:
    """Build the entry of a whole file. It is trusted if it was written since the machine's last boot."""
    digests = [line.digests[start : start + DIGEST_BYTES] for start in range(0, len(line.digests), DIGEST_BYTES)]
    saved = SavedState(digests, line.disk_bytes, line.reload_s, line.uses, line.boot == boot)
    return CacheEntry(line.key, line.listed, line.origin, CacheFile(path), line.chunk_bytes, saved)
