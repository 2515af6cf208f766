"""Files that are uploaded in parts. A file gets its name with its last part, so that nobody reads half of it."""

import errno
import os
import threading
import time

from aliquot.storage.errors import StorageError
from aliquot.storage.volumes.folder import UPLOADS, VolumeFile, VolumeFolder
from aliquot.storage.volumes.paths import Parts

MAX_UPLOADS = 16  # of one volume at a time
IDLE_TIMEOUT_S = 600.0  # an upload without a new part for so long has been given up


class UploadError(StorageError):
    """An upload cannot go on. The text is for users."""

    errno = errno.EINVAL


class _Upload:
    """A file that is being uploaded."""

    __slots__ = ("file", "parts", "size", "touched_s")

    def __init__(self, file: VolumeFile, parts: Parts) -> None:
        self.file = file
        self.parts = parts  # its path for now
        self.size = 0
        self.touched_s = time.monotonic()


class Uploads:
    """The uploads of one volume."""

    def __init__(self, folder: VolumeFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._running: dict[str, _Upload] = {}
        self._made = 0

    def write(self, parts: Parts, data: bytes, upload: str, offset: int, *, last: bool) -> int:
        """Write a part, and give the file its name if it is the last one. Return the size so far."""
        with self._lock:
            self._give_up_idle()
            if offset == 0:
                self._end(upload)
                self._begin(upload)
            found = self._running.get(upload)
            if found is None or found.size != offset:
                there = "nothing" if found is None else f"{found.size} bytes"
                raise UploadError(f"offset: {offset} does not follow: {there} of this upload are there; begin again")
            try:
                found.size += self._folder.write(found.file, data, offset)
                found.touched_s = time.monotonic()
                if last:
                    self._finish(upload, found, parts)
            except OSError:
                self._end(upload)
                raise
            return found.size

    def _begin(self, upload: str) -> None:
        if len(self._running) >= MAX_UPLOADS:
            raise UploadError(f"upload: {MAX_UPLOADS} files are being uploaded to this volume; try again later")
        self._made += 1
        place = (UPLOADS, str(self._made))
        self._running[upload] = _Upload(self._folder.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY), place)

    def _finish(self, upload: str, found: _Upload, parts: Parts) -> None:
        self._folder.sync(found.file)
        self._folder.make_directories(parts[:-1])
        self._folder.rename(found.parts, parts)
        self._folder.close(self._running.pop(upload).file)

    def _end(self, upload: str) -> None:
        """Remove an upload that is not wanted any more, if there is one."""
        if (found := self._running.pop(upload, None)) is not None:
            self._folder.remove_file(found.parts)
            self._folder.close(found.file)

    def _give_up_idle(self) -> None:
        until_s = time.monotonic() - IDLE_TIMEOUT_S
        for upload in [name for name, found in self._running.items() if found.touched_s < until_s]:
            self._end(upload)
