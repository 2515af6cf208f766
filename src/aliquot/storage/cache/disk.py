"""The cache's directory: whole files, files on their way, and an index in which only what is whole is written.

    lock       held by the one process that uses the directory
    index      a line of JSON for each whole file, written before the file gets its place
    files/     whole files
    arriving/  everything else: emptied at start

A crash of the process loses nothing that is whole. After a crash of the machine a file may have its name and size but
not its bytes: what was written before the machine's last start is compared with the digests in the index before use,
which is cheaper than to have every file on the disk for certain before it counts.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from time import time_ns

import msgspec

from aliquot.core.errors import InputError
from aliquot.storage.cache.body import DIGEST_BYTES, Body
from aliquot.storage.cache.entry import Entry
from aliquot.storage.records import FileKey, Listed

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SPARE_LINES = 1000


class Kept(msgspec.Struct, frozen=True):
    """A line of the index."""

    name: str
    dataset: str
    listed: Listed
    origin: str
    chunk_bytes: int
    digests: bytes  # of all chunks, one after the other
    disk_bytes: int
    reload_s: float
    uses: int
    boot: str


class Disk:
    """Not thread-safe but for `arriving`; whoever owns it takes turns."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = directory / "files"
        self._arriving = directory / "arriving"
        self._numbers = count(time_ns())  # no name is used twice, not even after a restart
        self._boot = _BOOT.read_text().strip() if _BOOT.exists() else str(time_ns())
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _locked(directory / "lock")
        self._index = -1
        self._lines = 0

    def recover(self) -> Iterator[Entry]:
        """What is whole; whatever else lies about in the directory is removed."""
        shutil.rmtree(self._arriving, ignore_errors=True)
        kept = {line.name: line for line in self._read_index()}
        there = {path.name: path for path in self._files.glob("*/*")} if self._files.exists() else {}
        newest: dict[FileKey, str] = {}
        for line in kept.values():
            if line.name in there and there[line.name].stat().st_size == line.listed.size:
                newest[FileKey(line.dataset, line.listed.path)] = line.name
        whole = set(newest.values())
        for name, path in there.items():
            if name not in whole:
                path.unlink()
        entries = [_entry(kept[name], there[name], self._boot) for name in newest.values()]
        with suppress(OSError):  # a full disk: the old one has more lines than it needs, and no wrong ones
            self.rewrite(entries)
        yield from entries

    def arriving(self) -> Path:
        """A new name for what is on its way."""
        self._arriving.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self._arriving / f"{next(self._numbers):x}"

    def keep(self, entry: Entry) -> None:
        """The entry's file is whole: give it its place. `FileNotFoundError` when it was taken from under us."""
        name = f"{blake2b(str(entry.key).encode(), digest_size=8).hexdigest()}-{next(self._numbers):x}"
        place = self._files / name[:2] / name
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._append(_kept(entry, name, self._boot))
        entry.body.move(place)

    def crowded(self, entries: int) -> bool:
        """Whether the index is mostly of files that have gone."""
        return self._lines > 2 * entries + _SPARE_LINES

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """A new index, in that order, in place of the old one."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [_line(_kept(entry, entry.body.path.name, self._boot)) for entry in entries if entry.whole]
        fresh = self._directory / f"index-{next(self._numbers):x}"
        try:
            fresh.write_bytes(b"".join(lines))
            fresh.rename(self._directory / "index")
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._close_index()
        self._lines = len(lines)

    def close(self) -> None:
        self._close_index()
        os.close(self._lock)

    def _append(self, kept: Kept) -> None:
        if self._index < 0 or os.fstat(self._index).st_nlink == 0:  # the directory was wiped
            self._close_index()
            self._index = os.open(
                self._directory / "index", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        line, before = _line(kept), os.fstat(self._index).st_size
        if os.write(self._index, line) != len(line):
            os.ftruncate(self._index, before)  # or the next line would be a part of this one
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._directory / "index"))
        self._lines += 1

    def _close_index(self) -> None:
        if self._index >= 0:
            os.close(self._index)
            self._index = -1

    def _read_index(self) -> Iterator[Kept]:
        for old in self._directory.glob("index-*"):  # not finished
            old.unlink()
        index = self._directory / "index"
        if not index.exists():
            return
        decoder = msgspec.json.Decoder(Kept)
        for line in index.read_bytes().splitlines():
            try:
                kept = decoder.decode(line)
            except msgspec.MsgspecError:  # a line that a crash cut off: its file never got its place
                continue
            yield kept


def _line(kept: Kept) -> bytes:
    return msgspec.json.encode(kept) + b"\n"


def _kept(entry: Entry, name: str, boot: str) -> Kept:
    digests = b"".join(entry.digests[chunk] for chunk in range(entry.chunk_count))
    written = boot if entry.trusted else ""
    facts = (entry.disk_bytes, entry.reload_s, entry.opens, written)
    return Kept(name, entry.key.dataset, entry.listed, entry.origin, entry.chunk_bytes, digests, *facts)


def _entry(kept: Kept, path: Path, boot: str) -> Entry:
    entry = Entry(FileKey(kept.dataset, kept.listed.path), kept.listed, kept.origin, Body(path), kept.chunk_bytes)
    starts = range(0, len(kept.digests), DIGEST_BYTES)
    entry.digests = {chunk: kept.digests[start : start + DIGEST_BYTES] for chunk, start in enumerate(starts)}
    entry.whole, entry.trusted = True, kept.boot == boot
    entry.disk_bytes, entry.reload_s, entry.opens = kept.disk_bytes, kept.reload_s, kept.uses
    return entry


def _locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise InputError(f"cache directory {path.parent}: another process uses it; each node needs its own") from error
    return fd
