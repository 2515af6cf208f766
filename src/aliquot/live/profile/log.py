"""The files of profiles: rows by second and by minute, each in two segments of bounded size.

A frame is a length, a checksum and the rows of one moment. When a segment is full, the older one is emptied and written
next. A torn frame at the end of a segment, which a killed server may leave, is cut off.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import structlog

from aliquot.core.units import KIB, MIB
from aliquot.live.profile.records import MINUTE_S, SECOND_S, ProfileRow

log = structlog.get_logger("aliquot.profile")

GRAINS = {SECOND_S: "seconds", MINUTE_S: "minutes"}
SEGMENTS = 2
DEFAULT_BYTES = 64 * MIB  # of the rows of one grain
MIN_BYTES = 64 * KIB
_HEAD = struct.Struct("<II")  # length and checksum
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[ProfileRow])


class SegmentedRows:
    """The rows of one grain."""

    def __init__(self, folder: Path, name: str, max_bytes: int) -> None:
        """Open the segments and cut off a torn end. Raises `OSError`."""
        self._max_bytes = max_bytes // SEGMENTS
        self._paths = segment_paths(folder, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._files = [os.open(path, flags, 0o600) for path in self._paths]
        written_ns = [os.fstat(file).st_mtime_ns if os.fstat(file).st_size else 0 for file in self._files]
        self._current = written_ns.index(max(written_ns))
        self._sizes = [_whole_bytes(file) for file in self._files]
        for file, size in zip(self._files, self._sizes, strict=True):
            if size < os.fstat(file).st_size:
                os.ftruncate(file, size)
        self._failing = False

    def add(self, rows: Sequence[ProfileRow]) -> None:
        """Append a frame. On a full disk it is lost, and a warning is logged once."""
        body = _ENCODER.encode(rows)
        frame = _HEAD.pack(len(body), zlib.crc32(body)) + body
        if self._sizes[self._current] + len(frame) > self._max_bytes:
            self._current = (self._current + 1) % SEGMENTS
            self._sizes[self._current] = 0
            os.ftruncate(self._files[self._current], 0)
        try:
            written = os.pwrite(self._files[self._current], frame, self._sizes[self._current])
        except OSError as error:
            written = 0
            if not self._failing:
                log.warning("profiles cannot be written", why=error.strerror)
        self._failing = written < len(frame)
        if not self._failing:
            self._sizes[self._current] += written

    def close(self) -> None:
        for file in self._files:
            os.close(file)


class ProfileLog:
    """The rows of all grains. The files are opened when there is something to write."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._rows: dict[int, SegmentedRows] | None = None
        self._broken = max_bytes == 0

    def add(self, rows: Sequence[ProfileRow]) -> None:
        """Append rows of one grain."""
        if self._rows is None and not self._broken:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._rows = {
                    grain: SegmentedRows(self._folder, name, self._max_bytes) for grain, name in GRAINS.items()
                }
            except OSError as error:
                self._broken = True
                log.warning("profiles are not recorded: their files cannot be opened", why=str(error))
        if self._rows is not None:
            self._rows[rows[0].grain_s].add(rows)

    def close(self) -> None:
        for rows in (self._rows or {}).values():
            rows.close()
        self._rows, self._broken = None, True


def segment_paths(folder: Path, name: str) -> list[Path]:
    """Return the paths of the segments of one grain."""
    return [folder / f"{name}.{number}" for number in range(SEGMENTS)]


def read_frames(path: Path) -> Iterator[list[ProfileRow]]:
    """Yield the rows of each whole frame of a segment. The first frame that is torn ends it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for begin, end in _frames(data):
        try:
            yield _DECODER.decode(data[begin:end])
        except msgspec.MsgspecError:  # of another version
            return


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        begin, end = at + _HEAD.size, at + _HEAD.size + length
        if end > len(data) or not length or zlib.crc32(data[begin:end]) != checksum:
            return
        yield begin, end
        at = end


def _whole_bytes(file: int) -> int:
    """Return the size up to the last whole frame. Only the last one can be torn, so only that one is read."""
    size, at, last = os.fstat(file).st_size, 0, (0, 0, 0)
    while len(head := os.pread(file, _HEAD.size, at)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        if not length or at + _HEAD.size + length > size:
            break
        last = at, length, checksum
        at += _HEAD.size + length
    begin, length, checksum = last
    return at if zlib.crc32(os.pread(file, length, begin + _HEAD.size)) == checksum else begin
