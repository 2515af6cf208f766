"""Volumes in a backup: one tar file for each, with its directories and files and nothing else."""

import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from aliquot.core.errors import InputError
from aliquot.core.units import MIB

_ID = "[0-9a-f]{32}"
_FILES = "files"
_SUFFIX = ".tar"


def is_volume(name: str, folder: str) -> bool:
    """Return whether a file of a backup is the archive of a volume."""
    return bool(folder) and re.fullmatch(f"{re.escape(folder)}/{_ID}{re.escape(_SUFFIX)}", name) is not None


def archive_volumes(source: Path, target: Path) -> None:
    """Write an archive for each volume in a folder. Functions may write meanwhile, so a file may be half written."""
    for volume in sorted(source.iterdir()) if source.is_dir() else ():
        if re.fullmatch(_ID, volume.name) and (volume / _FILES).is_dir():
            target.mkdir(mode=0o700, exist_ok=True)
            with tarfile.open(target / f"{volume.name}{_SUFFIX}", "w") as archive:
                for member, place in _members(volume / _FILES):
                    _add(archive, member, place)


def _members(root: Path) -> Iterator[tuple[tarfile.TarInfo, Path]]:
    for above, folders, files in os.walk(root):
        folders.sort()
        for name in (*folders, *sorted(files)):
            path = Path(above, name)
            try:
                found = path.lstat()
            except FileNotFoundError:  # removed meanwhile
                continue
            member = tarfile.TarInfo(str(path.relative_to(root)))
            member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
            if stat.S_ISDIR(found.st_mode):
                member.type = tarfile.DIRTYPE
            elif not stat.S_ISREG(found.st_mode):
                continue
            yield member, path


def _add(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.isdir():
        archive.addfile(member)
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "rb") as file:
        member.size = os.fstat(descriptor).st_size
        archive.addfile(member, _Padded(file, member.size))


class _Padded:
    """Reads a file of a known size. What was cut off meanwhile reads as zeros, so that the archive stays valid."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = 0, /) -> bytes:
        size = min(size, self._left)
        self._left -= size
        return self._file.read(size).ljust(size, b"\0")


def extract_volume(source: Path, target: Path) -> None:
    """Write the files of an archive into the folder of its volume. Raises `InputError` if it holds anything else."""
    root = target.with_suffix("") / _FILES
    root.mkdir(mode=0o700, parents=True)
    with tarfile.open(source) as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts
            if member.name.startswith("/") or ".." in parts or not (member.isdir() or member.isreg()):
                raise InputError(f"FILE: {target.name}: {member.name!r} does not belong in a volume")
            place = root.joinpath(*parts)
            if member.isdir():
                place.mkdir(mode=0o700, exist_ok=True)
                continue
            content = archive.extractfile(member)
            assert content is not None  # noqa: S101 - it is a regular file
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, member.mode & 0o700), "wb") as file:
                while data := content.read(MIB):
                    file.write(data)
            os.utime(place, (member.mtime, member.mtime))
