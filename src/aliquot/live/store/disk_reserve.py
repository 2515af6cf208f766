"""A reserve on the disk: before it is full, large bodies are refused, so that records and the journal still fit."""

import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from aliquot.core.units import GIB, KIB, MIB
from aliquot.live.store.base import StoreError
from aliquot.live.store.records import Activation

MAX_SMALL_BYTES = 64 * KIB  # writes up to this size may use the reserve
COPIES = 2  # a body is written to the log first, and then to the file
DEFAULT_PART = 20  # the default reserve is this part of the disk
MAX_DEFAULT_BYTES = GIB
_STATUS_CODE = b'"statusCode":'


class DiskReserveError(StoreError):
    """The disk is almost full, and a large body would use the reserve."""


class DiskReserve:
    """Tells whether a write leaves the reserve of its disk alone."""

    def __init__(self, folder: Path, reserve_bytes: int | None = None) -> None:
        """Without a size it is a twentieth of the disk, and at most 1 GiB."""
        self._folder = folder
        disk = os.statvfs(folder)
        default = min(MAX_DEFAULT_BYTES, disk.f_blocks * disk.f_frsize // DEFAULT_PART)
        self.reserve_bytes = default if reserve_bytes is None else reserve_bytes
        # Bytes in the database that can be used again without growing it. The writer updates them.
        self.spare_bytes = 0

    @property
    def free_bytes(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize + self.spare_bytes

    @property
    def missing_bytes(self) -> int:
        """The bytes to free until large bodies are accepted again, with as much in addition."""
        free = self.free_bytes
        return 0 if free >= self.reserve_bytes else 2 * self.reserve_bytes - free

    def fits(self, size: int, waiting: int = 0) -> bool:
        """Return false if a write of this size, after those that wait, is large and would use the reserve."""
        return size <= MAX_SMALL_BYTES or self.free_bytes - COPIES * (size + waiting) >= self.reserve_bytes

    def check(self, size: int, waiting: int = 0) -> None:
        """Raise `DiskReserveError` if `fits` is false."""
        if not self.fits(size, waiting):
            limit = f"what is left is kept for records, and bodies above {MAX_SMALL_BYTES // KIB} KiB are refused"
            raise DiskReserveError(
                f"the disk of {self._folder} is almost full: {self.free_bytes / MIB:.0f} MiB are free, the reserve is "
                f"{self.reserve_bytes / MIB:.0f} MiB; {limit}; free some space",
                f"the platform's disk is almost full: {limit}; try again later",
            )


def without_bodies(record: Activation, size: int) -> Activation:
    """Return the record of a call whose result and logs of this size cannot be kept. It says so, and is a failure."""
    why = f"the result and the logs of {size} bytes were not kept, because the platform's disk is almost full"
    result = msgspec.json.encode({"error": why})
    response = b'{"status":"application error","success":false,"result":%b,"size":%d}' % (result, len(result))
    cut = record.summary.rindex(_STATUS_CODE) + len(_STATUS_CODE) if _STATUS_CODE in record.summary else 0
    summary = record.summary[:cut] + b"1" + record.summary[cut + 1 :] if cut else record.summary
    return replace(record, summary=summary, response=response, logs=b"[]", pickled=None, large=None)
