"""The cache's directory: whole files, arriving files, and an index that lists only whole ones.

    lock       held by the one process that uses the directory
    index      one line of JSON for each whole file, written before the file gets its place
    files/     whole files
    arriving/  all other files; emptied at start

A crash of the process loses no whole file. An index line counts only if its file exists, so files may be removed at
any time. After a crash of the machine a file may have its name and size but not its bytes. Files written
before the machine's last boot are therefore compared with the digests in the index before their first use. That is
cheaper than flushing every file to disk.
"""

import fcntl
import os
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from time import time_ns

from aliquot.core.errors import InputError
from aliquot.storage.cache.disk.files import CacheFile, file_of
from aliquot.storage.cache.disk.index import CacheIndex, entry_from
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.records import FileKey, Listed

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class CacheDirectory:
    """Creates, commits and recovers the files of entries. The caller holds the cache's lock."""

    def __init__(self, directory: Path) -> None:
        self._files = directory / "files"
        self._arriving = directory / "arriving"
        self._numbers = count(time_ns())  # no file name is used twice, not even after a restart
        self._boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else str(time_ns())
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_fd = _lock(directory / "lock")
        self._index = CacheIndex(directory, self._boot)

    def recover(self) -> list[CacheEntry]:
        """Return the entries of all whole files, and remove every other file."""
        shutil.rmtree(self._arriving, ignore_errors=True)
        lines = {line.name: line for line in self._index.read()}
        present = {path.name: path for path in self._files.glob("*/*")} if self._files.exists() else {}
        newest: dict[FileKey, str] = {}
        for line in lines.values():
            if line.name in present and present[line.name].stat().st_size == line.listed.size:
                newest[line.key] = line.name
        whole = set(newest.values())
        for name, path in present.items():
            if name not in whole:
                path.unlink()
        entries = [entry_from(lines[name], present[name], self._boot) for name in newest.values()]
        with suppress(OSError):  # the disk is full; the old index has superfluous lines but no wrong ones
            self._index.rewrite(entries)
        return entries

    def create_entry(self, key: FileKey, listed: Listed, origin: str, chunk_bytes: int) -> CacheEntry:
        """Create an entry with an empty file of its size."""
        self._arriving.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = CacheFile(self._arriving / f"{next(self._numbers):x}")
        file.create(listed.size)
        return CacheEntry(key, listed, origin, file, chunk_bytes)

    def commit(self, entry: CacheEntry) -> None:
        """Add a complete file to the index and move it to its place. `FileNotFoundError` if it has disappeared."""
        name = f"{blake2b(str(entry.key).encode(), digest_size=8).hexdigest()}-{next(self._numbers):x}"
        place = self._files / name[:2] / name
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._index.append(entry, name)
        file_of(entry).move(place)

    def compact_index(self, entries: Collection[CacheEntry]) -> None:
        """Rewrite the index if most of its lines describe removed files."""
        if self._index.is_outdated(len(entries)):
            with suppress(OSError):  # the old index still works
                self._index.rewrite(entries)

    def close(self, entries: Iterable[CacheEntry]) -> None:
        """Write the final index and give up the directory."""
        with suppress(OSError):  # the old index is still valid
            self._index.rewrite(entries)
        self._index.close()
        os.close(self._lock_fd)


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise InputError(f"cache directory {path.parent}: another process uses it; each node needs its own") from error
    return fd
