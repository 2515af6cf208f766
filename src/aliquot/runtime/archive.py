"""Unpack an untrusted archive, a zip or a tar.gz: its size is limited, and every entry stays below the directory."""

from __future__ import annotations

import base64
import binascii
import io
import lzma
import os
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

from .units import GIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    import tarfile

MAX_TOTAL_BYTES = 2 * GIB
MAX_ENTRIES = 50_000
# Source and wheels have a ratio of 3 to 10, a stream of zeros 1000. Small archives are not checked.
MAX_RATIO = 200
RATIO_CHECKED_FROM_BYTES = 32 * MIB
MAX_DEPTH = 64
_GZIP = b"\x1f\x8b"
# Exceptions that zipfile, tarfile and their decompressors raise for damaged archives.
_BROKEN = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, IndexError, OverflowError, struct.error,
    zlib.error, lzma.LZMAError, ValueError, TypeError,
)  # fmt: skip


class ArchiveError(Exception):
    """The archive is damaged or dangerous, and the text says how."""


class _Entries:
    """Counts entries and directories: one short name in an archive can create a thousand directories."""

    def __init__(self, packed_bytes: int) -> None:
        self._packed_bytes = packed_bytes
        self._total_bytes = 0
        self._directories: set[tuple[str, ...]] = set()

    def add(self, place: list[str], size: int) -> None:
        """Add an entry. Raises `ArchiveError` if there are too many, or if they are too large."""
        self._total_bytes += size
        total = self._total_bytes
        if total > MAX_TOTAL_BYTES:
            raise ArchiveError(f"it unpacks to {total} bytes; at most {MAX_TOTAL_BYTES} are taken")
        if total > RATIO_CHECKED_FROM_BYTES and total > MAX_RATIO * self._packed_bytes:
            raise ArchiveError(f"it unpacks from {self._packed_bytes} to {total} bytes; that looks like a zip bomb")
        if len(place) > MAX_DEPTH:
            raise ArchiveError(f"the entry {'/'.join(place)[:80]!r}... is {len(place)} deep; at most {MAX_DEPTH} is")
        self._directories.update(tuple(place[:depth]) for depth in range(1, len(place)))
        if len(self._directories) > MAX_ENTRIES:
            raise ArchiveError(f"it makes more than {MAX_ENTRIES} directories")


def unpack(encoded: str, directory: Path) -> None:
    """Write the entries of a base64 zip or tar.gz below the directory. Raises `ArchiveError`."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ArchiveError(f"the code is not base64: {error}") from error
    if data.startswith(_GZIP):
        _unpack_tar(data, directory)
    else:
        _unpack_zip(data, directory)


# --- zip -----------------------------------------------------------------------------------------------------


def _unpack_zip(data: bytes, directory: Path) -> None:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _BROKEN as error:
        raise ArchiveError(f"the code is neither a zip nor a tar.gz in base64: {error}") from error
    with archive:
        entries = archive.infolist()
        if len(entries) > MAX_ENTRIES:
            raise ArchiveError(f"it has {len(entries)} entries; at most {MAX_ENTRIES} are taken")
        checked = _Entries(len(data))
        places = []
        for entry in entries:
            places.append(_zip_place(entry))
            checked.add(places[-1], entry.file_size)
        for entry, place in zip(entries, places, strict=True):
            try:
                _write_zip_entry(archive, entry, directory.joinpath(*place))
            except (OSError, *_BROKEN) as error:
                raise _not_unpacked(entry.filename, error) from error


def _write_zip_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    with archive.open(entry) as source:  # zipfile stops at the size that the zip's directory states
        _write_file(source, target, executable=bool(entry.external_attr >> 16 & 0o111))


def _zip_place(entry: zipfile.ZipInfo) -> list[str]:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise ArchiveError(f"the entry {entry.filename!r} is a symbolic link; pack the file itself")
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise _not_a_file(entry.filename)
    return _place(entry.filename.replace("\\", "/"))


# --- tar.gz --------------------------------------------------------------------------------------------------


def _unpack_tar(data: bytes, directory: Path) -> None:
    import tarfile  # noqa: PLC0415 - most code is no tar

    checked = _Entries(len(data))
    links: list[tuple[Path, str]] = []
    name = ""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as archive:
            for number, entry in enumerate(archive):
                if number >= MAX_ENTRIES:
                    raise ArchiveError(f"it has more than {MAX_ENTRIES} entries; at most {MAX_ENTRIES} are taken")
                name = entry.name
                place = _place(name)
                checked.add(place, entry.size)
                _write_tar_entry(archive, entry, directory, place, links)
        for link, target in links:  # last, so that nothing is written through them
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
    except (OSError, tarfile.TarError, *_BROKEN) as error:
        raise _not_unpacked(name, error) from error


def _write_tar_entry(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, directory: Path, place: list[str], links: list[tuple[Path, str]]
) -> None:
    target = directory.joinpath(*place)
    if entry.isdir():
        target.mkdir(parents=True, exist_ok=True)
    elif entry.isreg():
        source = archive.extractfile(entry)
        if source is None:
            raise _not_a_file(entry.name)
        with source:
            _write_file(source, target, executable=bool(entry.mode & 0o111))
    elif entry.islnk():  # another name of a file that came before
        with directory.joinpath(*_place(entry.linkname)).open("rb") as source:
            _write_file(source, target, executable=bool(entry.mode & 0o111))
    elif entry.issym():
        _place(os.path.normpath("/".join([*place[:-1], entry.linkname])))
        links.append((target, entry.linkname))
    else:
        raise _not_a_file(entry.name)


# --- both ----------------------------------------------------------------------------------------------------


def _write_file(source: IO[bytes], target: Path, *, executable: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as sink:
        shutil.copyfileobj(source, sink)
    if executable:
        target.chmod(0o700)


def _place(name: str) -> list[str]:
    """Return the path of an entry below the target directory, as a list of names."""
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ArchiveError(f"the entry {name!r} leads out of the archive")
    return [part for part in name.split("/") if part not in {"", "."}]


def _not_a_file(name: str) -> ArchiveError:
    return ArchiveError(f"the entry {name!r} is neither a file nor a directory")


def _not_unpacked(name: str, error: Exception) -> ArchiveError:
    return ArchiveError(f"the entry {name!r} cannot be unpacked: {error}")
