"""Machine code that a driver has compiled, as one archive: a trial packs it, and executors unpack it."""

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from aliquot.runtime.units import MIB

MAX_CODE_BYTES = 32 * MIB
CODE = "code"  # the name of the archive among the files of a launch
CACHES = {"POCL_CACHE_DIR": "/tmp/pocl", "XDG_CACHE_HOME": "/tmp/cache"}  # noqa: S108 - each sandbox has its own there


def pack_code() -> bytes:
    """Return what the driver has compiled in this process's sandbox, or nothing if it is too much."""
    folder, whole = Path(CACHES["POCL_CACHE_DIR"]), io.BytesIO()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "tempfile" not in path.name]
    if not files or sum(path.stat().st_size for path in files) > MAX_CODE_BYTES:
        return b""
    with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=1) as archive:
        for path in files:
            archive.add(path, path.relative_to(folder))
    return whole.getvalue()


def unpack_code(descriptor: int) -> None:
    """Put an archive where the driver looks for compiled code. Without one, or with a damaged one, it compiles again.

    The archive was written by native code of the same tenant, and is unpacked inside the tenant's walls.
    """
    damaged = (OSError, EOFError, tarfile.TarError, zlib.error)
    with (
        os.fdopen(descriptor, "rb") as file,
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        contextlib.suppress(*damaged),
        tarfile.open(fileobj=file, mode="r:gz") as archive,
    ):
        _unpack_files(archive, Path(name))
        _move_missing(Path(name), Path(CACHES["POCL_CACHE_DIR"]))


def _unpack_files(archive: tarfile.TarFile, target: Path) -> None:
    """Write the regular files of an archive below a folder. Filters of `tarfile` exist from Python 3.11.4 on."""
    for member in archive:
        path = PurePosixPath(member.name)
        if not member.isreg() or path.is_absolute() or ".." in path.parts:
            continue
        content = archive.extractfile(member)
        if content is None:
            continue
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            shutil.copyfileobj(content, file)
        place.chmod(member.mode & 0o700)


def _move_missing(source: Path, target: Path) -> None:
    """Move files that the target lacks. The others may be in use: another graph may have the same program."""
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)
