"""Unpacks a zip that a stranger sent: bounded, and nothing of it lands outside its directory."""

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

TOTAL_BYTES = 2 * GIB
ENTRIES = 50_000
# Source and wheels come to 3-10; a stream of zeros to 1000. Small archives may be anything.
RATIO = 200
RATIO_FROM_BYTES = 32 * MIB
DEPTH = 64
# What zipfile and what unpacks for it raise when the bytes are not what they should be.
_BROKEN = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, IndexError, OverflowError, struct.error,
    zlib.error, lzma.LZMAError, ValueError,
)  # fmt: skip


class ArchiveError(Exception):
    """The archive is not one, or would do harm; the text says how."""


def unpack(encoded: str, directory: Path) -> None:
    """Write a base64 zip's entries below the directory."""
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
        # zipfile stops at the size that the directory states, so the check above bounds what is written.
        shutil.copyfileobj(source, sink)
    if entry.external_attr >> 16 & 0o111:
        target.chmod(0o700)


def _check_size(entries: list[zipfile.ZipInfo], packed: int) -> None:
    if len(entries) > ENTRIES:
        raise ArchiveError(f"the zip has {len(entries)} entries; at most {ENTRIES} are taken")
    total = sum(entry.file_size for entry in entries)
    if total > TOTAL_BYTES:
        raise ArchiveError(f"the zip unpacks to {total} bytes; at most {TOTAL_BYTES} are taken")
    if total > RATIO_FROM_BYTES and total > RATIO * packed:
        raise ArchiveError(f"the zip unpacks from {packed} to {total} bytes; that looks like a zip bomb")


def _check_directories(places: list[list[str]]) -> None:
    """A name is short in the zip, and may ask for a thousand directories."""
    found: set[tuple[str, ...]] = set()
    for place in places:
        if len(place) > DEPTH:
            raise ArchiveError(f"the zip's entry {'/'.join(place)[:80]!r}... is {len(place)} deep; at most {DEPTH} is")
        found.update(tuple(place[:depth]) for depth in range(1, len(place)))
        if len(found) > ENTRIES:
            raise ArchiveError(f"the zip makes more than {ENTRIES} directories")


def _place(entry: zipfile.ZipInfo) -> list[str]:
    """Where it goes, below the directory, name by name."""
    name = entry.filename.replace("\\", "/")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise ArchiveError(f"the zip's entry {entry.filename!r} is a symbolic link; pack the file itself")
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise ArchiveError(f"the zip's entry {entry.filename!r} is neither a file nor a directory")
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ArchiveError(f"the zip's entry {entry.filename!r} leads out of the archive")
    return [part for part in name.split("/") if part not in {"", "."}]
