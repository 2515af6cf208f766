"""Writes the usage file, a ring of records: when the file has its full size, the oldest records are overwritten.

The file is written with `pwrite` and not mapped, because a full disk is then an error, while a mapped file would crash
the server. Written records survive the end of the server. A machine that loses power may lose the last seconds.
"""

import os
from pathlib import Path

import structlog

from aliquot.core.errors import InputError
from aliquot.core.units import KIB, MIB
from aliquot.live.usage.records import (
    HEAD_BYTES,
    RECORD_BYTES,
    UsageLabel,
    UsageSample,
    pack_head,
    pack_label,
    pack_sample,
    read_head,
)
from aliquot.live.usage.ring import cycle_of, next_number, offset_of

log = structlog.get_logger("aliquot.usage")

DEFAULT_FILE_BYTES = 64 * MIB
MIN_FILE_BYTES = 64 * KIB


class UsageFile:
    def __init__(self, path: Path, size: int = DEFAULT_FILE_BYTES) -> None:
        """Open the file, and empty it if it has another size or version. Raises `OSError`."""
        self.capacity = (size - HEAD_BYTES) // RECORD_BYTES
        self._cycle = cycle_of(self.capacity)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pending: list[bytes] = []
        self._failing = False
        if read_head(os.pread(self._fd, HEAD_BYTES, 0)) != self.capacity:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, pack_head(self.capacity), 0)
        written = max(0, os.fstat(self._fd).st_size - HEAD_BYTES) // RECORD_BYTES
        # A torn record at the end counts as written. The next record takes its place.
        self._next = next_number(self._fetch, self.capacity, min(self.capacity, written))

    def label(self, meaning: UsageLabel, again: int | None = None) -> int:
        """Write a label and return its number. `again` repeats a label whose records may be overwritten soon."""
        first = self._number()
        label = first if again is None else again
        self._pending += pack_label(first, self._cycle, label, meaning)
        return label

    def age(self, number: int) -> int:
        """Return how many records are newer than this one."""
        return (self._number() - number) % self._cycle

    @property
    def position(self) -> int:
        return self._number()

    def add(self, sample: UsageSample) -> None:
        self._pending.append(pack_sample(self._number(), sample))

    def flush(self) -> None:
        """Write the pending records. On a full disk they are lost, and a warning is logged once."""
        data, count = b"".join(self._pending), len(self._pending)
        self._pending.clear()
        place = self._next % self.capacity
        until_the_end = (self.capacity - place) * RECORD_BYTES
        try:
            _write(self._fd, data[:until_the_end], offset_of(place))
            _write(self._fd, data[until_the_end:], offset_of(0))
        except OSError as error:
            if not self._failing:
                log.warning("usage cannot be written", why=error.strerror)
            self._failing = True
        else:
            self._failing = False
        self._next = (self._next + count) % self._cycle  # lost records count too, because a number may identify a label

    def close(self) -> None:
        os.close(self._fd)

    def _number(self) -> int:
        return (self._next + len(self._pending)) % self._cycle

    def _fetch(self, place: int) -> bytes:
        return os.pread(self._fd, RECORD_BYTES, offset_of(place))


def check_size(size: int, where: str) -> int:
    """Return the size of a usage file, or raise `InputError` with the option `where`."""
    if size < MIN_FILE_BYTES:
        raise InputError(f"{where}: {size} bytes are too few; it takes {MIN_FILE_BYTES // KIB}KiB or more")
    return size


def _write(fd: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
