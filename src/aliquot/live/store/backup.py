"""Back up a data folder into one file while its server runs, and restore it.

The archive is a tar file: a manifest with the checksum of each file, and the files. It holds what cannot be made again:
namespaces, functions, records, the journal, the operator's token, the key of secrets, volumes, models and the access
log. Each volume is a tar file of its own (`volume_archive.py`). Environments and cached files of datasets are made
again when they are needed.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.durable_files import sync_directory
from aliquot.live.store.base import StoreError
from aliquot.live.store.data_directory import DATABASE, OPERATOR_TOKEN, SECRETS_KEY, DataDirectory
from aliquot.live.store.schema import connect_reader
from aliquot.live.store.volume_archive import archive_volumes, extract_volume, is_volume
from aliquot.version import __version__

MANIFEST = "manifest.json"
FORMAT = 1
_BUSY_MS = 10_000
_READ_BYTES = MIB
_PRIVATE_FILES = (OPERATOR_TOKEN, SECRETS_KEY)


class DataParts(Struct, frozen=True):
    """The parts of a data folder that a backup has beside the store's own. Names are relative to the folder."""

    databases: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # their entries appear and disappear as a whole, by renaming
    volumes: str = ""  # the folder of volumes, or empty


class BackupFile(Struct, frozen=True):
    """A file of a backup."""

    bytes: int
    sha256: str


class BackupManifest(Struct, frozen=True):
    """The contents of a backup."""

    format: int
    version: str  # of Aliquot
    created: float
    files: dict[str, BackupFile]

    @property
    def total_bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


def write_backup(data: Path, target: Path, parts: DataParts) -> BackupManifest:
    """Write a backup of a data folder. The server may run. Raises `InputError` if it cannot be made."""
    if not (data / DATABASE).is_file():
        raise InputError(f"--data: {data} is not the data folder of a server: it has no {DATABASE}")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory(prefix=".aliquot-backup-", dir=target.parent) as name:
            folder = Path(name)
            _copy(data, folder, parts)
            manifest = _describe(folder)
            _pack(folder, manifest, draft, compress=target.suffix in {".gz", ".tgz"})
        draft.replace(target)
        sync_directory(target.parent)
    except (OSError, sqlite3.Error, StoreError) as error:
        raise InputError(f"FILE: {target} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return manifest


def _copy(data: Path, folder: Path, parts: DataParts) -> None:
    for name in (DATABASE, *parts.databases):
        if (data / name).is_file():
            _make_parent(folder / name)
            _copy_database(data / name, folder / name)
    for name in _PRIVATE_FILES:
        if (data / name).is_file():
            shutil.copyfile(data / name, folder / name)
    for name in parts.folders:
        if (data / name).is_dir():
            with contextlib.suppress(shutil.Error):  # an entry that was removed meanwhile
                shutil.copytree(data / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    if parts.volumes:
        archive_volumes(data / parts.volumes, folder / parts.volumes)


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database in one read transaction, so that the copy is what was committed at one moment."""
    is_store = source.name == DATABASE
    reader = connect_reader(source, busy_ms=_BUSY_MS) if is_store else _open_read_only(source)
    with contextlib.closing(reader), contextlib.closing(sqlite3.connect(target)) as copy:
        reader.backup(copy)


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def _describe(folder: Path) -> BackupManifest:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): BackupFile(path.stat().st_size, _sum(path)) for path in paths}
    return BackupManifest(FORMAT, __version__, time.time(), files)


def _pack(folder: Path, manifest: BackupManifest, draft: Path, *, compress: bool) -> None:
    descriptor = os.open(
        draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    )  # it has the operator's token and the key of secrets
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz" if compress else "w") as archive:
            (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
            for name in (MANIFEST, *manifest.files):
                archive.add(folder / name, name, recursive=False)
        file.flush()
        os.fsync(file.fileno())


def restore_backup(source: Path, data: Path, parts: DataParts) -> BackupManifest:
    """Restore a backup into a data folder that no server uses and that has no database yet. Raises `InputError`."""
    if (data / DATABASE).exists():
        raise InputError(f"--data: {data} has a database already; restore into an empty folder, or move it away")
    directory = DataDirectory(data)  # locks it
    try:
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=directory.path) as name:
            folder = Path(name)
            manifest = _unpack(source, folder, parts)
            with contextlib.closing(connect_reader(folder / DATABASE, busy_ms=_BUSY_MS)) as reader:
                (found,) = reader.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise InputError(f"FILE: {source} is damaged: {found}")
            # The database is last: a folder without it is not one of a server.
            for file in sorted(manifest.files, key=lambda name: name == DATABASE):
                if is_volume(file, parts.volumes):
                    extract_volume(folder / file, directory.path / file)
                    continue
                _make_parent(directory.path / file)
                (folder / file).replace(directory.path / file)
        sync_directory(directory.path)
    except StoreError as error:
        raise InputError(f"FILE: {source}: {error}") from error
    except (OSError, tarfile.TarError, EOFError) as error:
        raise InputError(f"FILE: {source} cannot be restored: {error}") from error
    finally:
        directory.release()
    return manifest


def _unpack(source: Path, folder: Path, parts: DataParts) -> BackupManifest:
    with tarfile.open(source) as archive:
        manifest = _read_manifest(archive, source, parts)
        for name, file in manifest.files.items():
            _make_parent(folder / name)
            member = archive.extractfile(name)
            with (folder / name).open("xb") as target:
                shutil.copyfileobj(member, target, _READ_BYTES)  # type: ignore[arg-type] # a member that is a file
            (folder / name).chmod(0o600)
            if _sum(folder / name) != file.sha256:
                raise InputError(f"FILE: {source} is damaged: {name} has another checksum than when it was written")
    return manifest


def _read_manifest(archive: tarfile.TarFile, source: Path, parts: DataParts) -> BackupManifest:
    first = archive.next()
    member = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
    try:
        manifest = msgspec.json.decode(member.read() if member else b"", type=BackupManifest)
    except msgspec.DecodeError as error:
        raise InputError(f"FILE: {source} is not a backup of Aliquot: it has no {MANIFEST}") from error
    if manifest.format != FORMAT:
        raise InputError(f"FILE: {source} was written by Aliquot {manifest.version}; install that one to restore it")
    for name in (*manifest.files, DATABASE):
        if not _belongs(name, parts) or name not in manifest.files or not archive.getmember(name).isreg():
            raise InputError(
                f"FILE: {source} is not a backup of Aliquot: {name!r} is missing or does not belong in one"
            )
    return manifest


def _belongs(name: str, parts: DataParts) -> bool:
    if name in {DATABASE, *_PRIVATE_FILES, *parts.databases}:
        return True
    if is_volume(name, parts.volumes):
        return True
    return any(name.startswith(f"{folder}/") for folder in parts.folders) and ".." not in Path(name).parts


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make_parent(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
