"""Unpacks a zip that a stranger sent: bounded, and nothing of it lands outside its directory."""

from __future__ import annotations

import base64
import binascii
import io
import shutil
import stat
import zipfile
from pathlib import Path

TOTAL_BYTES = 2 * 2**30
ENTRIES = 50_000
# Source and wheels come to 3-10; a stream of zeros to 1000. Small archives may be anything.
RATIO = 200
RATIO_FROM_BYTES = 32 * 2**20


class ArchiveError(Exception):
    """The archive is not one, or would do harm; the text says how."""


def unpack(encoded: str, directory: Path) -> None:
    """Write a base64 zip's entries below the directory."""
    try:
        data = base64.b64decode(encoded, validate=True)
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (binascii.Error, ValueError, zipfile.BadZipFile) as error:
        raise ArchiveError(f"the code is not a zip in base64: {error}") from error
    with archive:
        entries = archive.infolist()
        _check_size(entries, len(data))
        for entry in entries:
            target = _target(entry, directory)
            if entry.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with archive.open(entry) as source, target.open("xb") as sink:
                    # zipfile stops at the size that the directory states, so the check above bounds what is written.
                    shutil.copyfileobj(source, sink)
            except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
                raise ArchiveError(f"the zip's entry {entry.filename!r} cannot be unpacked: {error}") from error
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


def _target(entry: zipfile.ZipInfo, directory: Path) -> Path:
    name = entry.filename.replace("\\", "/")
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise ArchiveError(f"the zip's entry {entry.filename!r} is a symbolic link; pack the file itself")
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ArchiveError(f"the zip's entry {entry.filename!r} leads out of the archive")
    return directory.joinpath(*[part for part in name.split("/") if part not in {"", "."}])
