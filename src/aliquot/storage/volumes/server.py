"""All volumes of the node: the sandboxes that have them mounted, and the requests of the gateway."""

import errno
import os
import re
import stat
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from aliquot.budgets import Budget
from aliquot.durable_files import remove_directory
from aliquot.storage.errors import StorageError
from aliquot.storage.volumes.connection import VolumeConnection
from aliquot.storage.volumes.folder import FILES, VolumeFile, VolumeFolder
from aliquot.storage.volumes.paths import Parts, split_path
from aliquot.storage.volumes.records import VolumeEntry, VolumePart, VolumeSpec
from aliquot.storage.volumes.uploads import Uploads

log = structlog.get_logger("aliquot.volumes")

MAX_ENTRIES = 10_000  # that one request lists
VOLUME_ID = re.compile("[0-9a-f]{32}")
_REMOVED_ID = re.compile(r"\.removed-([0-9a-f]{32})")  # a deletion that was cut short


class VolumeError(StorageError):
    """A request about a volume failed. The text is for users."""

    errno = errno.ENOENT


class VolumeServer:
    """The volumes of the node. Every method may be called from any thread, and may wait for the disk.

    It deletes nothing but folders whose name is the id of a volume, and works only in a folder with an absolute path.
    """

    def __init__(
        self, folder: str, volumes: Sequence[VolumeSpec] = (), reserve_bytes: int = 0, max_handles: int = 1000
    ) -> None:
        """Delete what is left of deleted volumes. Without a folder there are no volumes, and nothing is deleted."""
        if folder and not Path(folder).is_absolute():
            raise ValueError(f"the folder of volumes is {folder!r}; it takes an absolute path")
        self._folder = Path(folder) if folder else None
        self._reserve_bytes = reserve_bytes
        self._handles = Budget("open files of volumes", "files", max_handles)
        self._lock = threading.Lock()
        self._specs = {volume.id: volume for volume in volumes}
        self._opened: dict[str, VolumeFolder] = {}
        self._uploads: dict[str, Uploads] = {}
        self._stops: dict[int, int] = {}  # by sandbox: the descriptor that ends its thread
        if left := self._left_behind():
            threading.Thread(target=_delete, args=(left,), name="deleted volumes", daemon=True).start()

    def _left_behind(self) -> list[Path]:
        """Return the folders of volumes that are not known, and of deletions that were cut short."""
        if self._folder is None or not self._folder.is_dir():
            return []
        left: dict[str, Path] = {}
        for path in self._folder.iterdir():
            removed = _REMOVED_ID.fullmatch(path.name)
            volume = removed[1] if removed else path.name
            if VOLUME_ID.fullmatch(volume) and volume not in self._specs:
                left[volume] = self._folder / volume
        return list(left.values())

    # --- volumes ------------------------------------------------------------------------------------------

    def put(self, volume: VolumeSpec) -> None:
        """Add a volume, or change its size."""
        with self._lock:
            self._specs[volume.id] = volume
            if volume.id in self._opened:
                self._opened[volume.id].max_bytes = volume.max_bytes

    def remove(self, volume: str) -> None:
        """Delete a volume with all its files. Sandboxes that have it mounted get errors."""
        with self._lock:
            self._specs.pop(volume, None)
            self._uploads.pop(volume, None)
            if (opened := self._opened.pop(volume, None)) is not None:
                opened.remove()
        remove_directory(self._place(volume))

    def used_bytes(self, volumes: Sequence[str]) -> dict[str, int]:
        """Return the bytes that volumes use, without those that were deleted meanwhile."""
        used = {}
        for volume in volumes:
            with suppress(VolumeError):
                used[volume] = self._open(volume).used_bytes
        return used

    def figures(self) -> dict[str, float]:
        """Return figures for people, or none if there are no volumes."""
        with self._lock:
            if not self._specs:
                return {}
            return {
                "volumes": len(self._specs),
                "volume_bytes_max": sum(volume.max_bytes for volume in self._specs.values()),
                "volume_bytes": sum(folder.used_bytes for folder in self._opened.values()),
                "volume_sandboxes": len(self._stops),
            }

    def _place(self, volume: str) -> Path:
        if self._folder is None or not VOLUME_ID.fullmatch(volume):
            raise VolumeError("there is no folder for this volume")
        return self._folder / volume

    def _open(self, volume: str) -> VolumeFolder:
        """Return the folder of a volume. Its bytes are counted when it is first used."""
        with self._lock:
            found = self._opened.get(volume)
            if found is None:
                spec = self._specs.get(volume)
                if spec is None:
                    raise VolumeError("the volume was deleted")
                found = VolumeFolder(self._place(volume), spec.max_bytes, self._reserve_bytes)
                self._opened[volume] = found
                self._uploads[volume] = Uploads(found)
            return found

    # --- sandboxes ----------------------------------------------------------------------------------------

    def mount(self, sandbox: int, device: int, volumes: Mapping[str, str], tenant: str) -> None:
        """Serve volumes, ids by name, on a descriptor of `/dev/fuse`, which belongs to this object from now on."""
        thread = threading.Thread(
            target=self._serve, args=(sandbox, device, dict(volumes), tenant), name=f"volumes {sandbox}", daemon=True
        )
        thread.start()

    def _serve(self, sandbox: int, device: int, volumes: dict[str, str], tenant: str) -> None:
        stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with self._lock:
            self._stops[sandbox] = stop
        folders: dict[str, VolumeFolder] = {}
        try:
            for name, volume in volumes.items():
                with suppress(VolumeError):  # it was deleted meanwhile, and is not shown
                    folders[name] = self._open(volume)
            VolumeConnection(device, folders, tenant, self._handles, stop).serve()
        except Exception:
            log.exception("the volumes of a sandbox are lost", sandbox=sandbox)
        finally:
            with self._lock:
                if self._stops.get(sandbox) == stop:
                    del self._stops[sandbox]
                os.close(stop)

    def unmount(self, sandbox: int) -> None:
        """Stop serving a sandbox that has ended. Nothing happens if it has no volumes."""
        with self._lock:
            if (stop := self._stops.get(sandbox)) is not None:
                os.eventfd_write(stop, 1)

    # --- requests of the gateway --------------------------------------------------------------------------

    def entries(self, volume: str, path: str, skip: int, limit: int) -> list[VolumeEntry]:
        """Return entries of a directory, ordered by name. A path of a file has one entry."""
        folder, parts = self._open(volume), _parts(path)
        found = folder.stat(parts)
        if not stat.S_ISDIR(found.st_mode):
            return [_entry(parts[-1], found)][skip:][:limit]
        entries = []
        for name in folder.names(parts)[skip : skip + min(limit, MAX_ENTRIES)]:
            with suppress(FileNotFoundError):  # removed meanwhile
                entries.append(_entry(name, folder.stat((*parts, name))))
        return entries

    def read(self, volume: str, path: str, offset: int, size: int) -> VolumePart:
        """Return a part of a file."""
        folder = self._open(volume)
        file = folder.open(_parts(path), os.O_RDONLY)
        try:
            found = os.fstat(file.fd)
            return VolumePart(folder.read(file, size, offset), found.st_size, _version(file))
        finally:
            folder.close(file)

    def write(self, volume: str, path: str, data: bytes, upload: str, offset: int, *, last: bool) -> int:
        """Write a part of a file that is uploaded. With the last part it gets its name. Return its size so far."""
        self._open(volume)
        if len(_parts(path)) == 1:
            raise OSError(errno.EISDIR, "it is the volume itself")
        return self._uploads[volume].write(_parts(path), data, upload, offset, last=last)

    def make_directory(self, volume: str, path: str) -> None:
        """Make a directory, and those above it."""
        self._open(volume).make_directories(_parts(path))

    def remove_path(self, volume: str, path: str, *, recursive: bool) -> int:
        """Remove a file, an empty directory, or with `recursive` everything below it. Return the number of names."""
        folder, parts = self._open(volume), _parts(path)
        if not stat.S_ISDIR(folder.stat(parts).st_mode):
            folder.remove_file(parts)
            return 1
        count = 0
        if recursive:
            for name in folder.names(parts):
                count += self.remove_path(volume, "/".join((*parts[1:], name)), recursive=True)
        if len(parts) > 1:
            folder.remove_directory(parts)
            count += 1
        elif not recursive:
            raise OSError(errno.EISDIR, "it is the volume itself")
        return count


def _delete(left: list[Path]) -> None:
    for path in left:
        remove_directory(path)


def _parts(path: str) -> Parts:
    """Return where a path of a request is in the folder of its volume."""
    return (FILES, *split_path(path))


def _entry(name: str, found: os.stat_result) -> VolumeEntry:
    directory = stat.S_ISDIR(found.st_mode)
    return VolumeEntry(name, directory, 0 if directory else found.st_size, found.st_mtime_ns // 1_000_000)


def _version(file: VolumeFile) -> str:
    found = os.fstat(file.fd)
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
