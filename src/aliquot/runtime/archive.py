"""Unpack an untrusted zip: its size is limited, and every entry stays below the target directory."""

from __future__ import annotations

import base64
import binascii
import io
import lzma
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from .units import GIB, MIB

MAX_TOTAL_BYTES = 2 * GIB
MAX_ENTRIES = 50_000
# Source and wheels have a ratio of 3 to 10, a stream of zeros 1000. Small archives are not checked.
MAX_RATIO = 200
RATIO_CHECKED_FROM_BYTES = 32 * MIB
MAX_DEPTH = 64
# Exceptions that zipfile and its decompressors raise for damaged archives.
_BROKEN = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, IndexError, OverflowError, struct.error,
    zlib.error, lzma.LZMAError, ValueError,
)  # fmt: skip


class ArchiveError(Exception):
    """The archive is damaged or dangerous, and the text says how."""


def unpack(encoded: str, directory: Path) -> None:
    """Write the entries of a base64 zip below the directory. Raises `ArchiveError`."""
    try:
        data = base64.b64decode(encoded, validate=True)
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (binascii.Error, *_BROKEN) as error:
        raise ArchiveError(f"the code is not a zip in base64: {error}") from error
    with archive:
        entries = archive.infolist()
        _check_size(entries, len(data))
        places = [_place(entry) for entry in entries]
        _check_directories(places)
        for entry, place in zip(entries, places, strict=True):
            try:
                _write(archive, entry, directory.joinpath(*place))
            except (OSError, *_BROKEN) as error:
                raise ArchiveError(f"the zip's entry {entry.filename!r} cannot be unpacked: {error}") from error


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, target.open("xb") as sink:
        # zipfile stops at the size that the zip's directory states, so the check above limits the written bytes.
        shutil.copyfileobj(source, sink)
    if entry.external_attr >> 16 & 0o111:
        target.chmod(0o700)


def _check_size(entries: list[zipfile.ZipInfo], packed: int) -> None:
    if len(entries) > MAX_ENTRIES:
        raise ArchiveError(f"the zip has {len(entries)} entries; at most {MAX_ENTRIES} are taken")
    total = sum(entry.file_size for entry in entries)
    if total > MAX_TOTAL_BYTES:
        raise ArchiveError(f"the zip unpacks to {total} bytes; at most {MAX_TOTAL_BYTES} are taken")
    if total > RATIO_CHECKED_FROM_BYTES and total > MAX_RATIO * packed:
        raise ArchiveError(f"the zip unpacks from {packed} to {total} bytes; that looks like a zip bomb")


def _check_directories(places: list[list[str]]) -> None:
    """Limit the number of directories: one short name in a zip can create a thousand."""
    found: set[tuple[str, ...]] = set()
    for place in places:
        if len(place) > MAX_DEPTH:
            raise ArchiveError(
                f"the zip's entry {'/'.join(place)[:80]!r}... is {len(place)} deep; at most {MAX_DEPTH} is"
            )
        found.update(tuple(place[:depth]) for depth in range(1, len(place)))
        if len(found) > MAX_ENTRIES:
            raise ArchiveError(f"the zip makes more than {MAX_ENTRIES} directories")


def _place(entry: zipfile.ZipInfo) -> list[str]:
    """Return the path of an entry below the target directory, as a list of names."""
    name = entry.filename.replace("\\", "/")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise ArchiveError(f"the zip's entry {entry.filename!r} is a symbolic link; pack the file itself")
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise ArchiveError(f"the zip's entry {entry.filename!r} is neither a file nor a directory")
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ArchiveError(f"the zip's entry {entry.filename!r} leads out of the archive")
    return [part for part in name.split("/") if part not in {"", "."}]
