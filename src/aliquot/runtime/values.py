"""Pickles whose large buffers travel apart: in shared memory between sandboxes of a node, or behind the pickle.

A body is a plain pickle, or an envelope: a head with the buffers' sizes, the pickle, and then, unless they are in a
parcel, the buffers. A parcel is one piece of shared memory with the buffers in their order, each at a multiple of 64.
Nobody can write to it once it has been handed over; who takes it maps it privately, so that what one changes nobody
else sees, and only what is changed is copied.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import struct
from typing import Any

SHARED_BYTES = 64 * 1024  # from here on a buffer travels apart

MOST_BUFFERS = 4096  # of one value: further ones stay in the pickle

_MAGIC = b"\x00ALQ"  # no pickle begins so
_HEAD = struct.Struct("<4sIQ")  # magic, buffers, bytes of the pickle
_SIZE = struct.Struct("<Q")
_ALIGNED = 64
_DEPTH = 4
_PIECE = 2**26
_LOOKED_AT = 1000  # values, in search of large bytes


def is_envelope(body: bytes | memoryview) -> bool:
    return bytes(body[:4]) == _MAGIC


def seal_up(pickled: bytes, sizes: list[int]) -> bytes:
    """The envelope without the buffers."""
    return b"".join((_HEAD.pack(_MAGIC, len(sizes), len(pickled)), *map(_SIZE.pack, sizes), pickled))


def opened(body: bytes | memoryview) -> tuple[memoryview, list[int], memoryview]:
    """The pickle, the sizes of its buffers, and what is behind it: the buffers, or nothing. Raises a `ValueError`."""
    view = memoryview(body)
    if len(view) < _HEAD.size:
        raise ValueError("the envelope is cut off")
    _, count, length = _HEAD.unpack_from(view)
    begin = _HEAD.size + count * _SIZE.size
    if begin + length > len(view):
        raise ValueError("the envelope is cut off")
    if count > MOST_BUFFERS:
        raise ValueError(f"the envelope has {count} buffers; it takes {MOST_BUFFERS} at most")
    sizes = [_SIZE.unpack_from(view, _HEAD.size + number * _SIZE.size)[0] for number in range(count)]
    return view[begin : begin + length], sizes, view[begin + length :]


def places(sizes: list[int]) -> tuple[list[slice], int]:
    """Where each buffer is in a parcel, and how large the parcel is."""
    spans, end = [], 0
    for size in sizes:
        spans.append(slice(end, end + size))
        end += -(-size // _ALIGNED) * _ALIGNED
    return spans, end


def inlined(body: bytes | memoryview, parcel: memoryview) -> bytes:
    """The envelope with the buffers behind it: for whoever cannot take a parcel, and for the disk."""
    return b"".join((body, *(parcel[span] for span in places(opened(body)[1])[0])))


def fill(fd: int, buffers: list[memoryview]) -> None:
    """Put the buffers into a parcel, each in its place.

    Written, not mapped: the kernel need not clear pages first, which halves what it costs.
    """
    spans, size = places([len(buffer) for buffer in buffers])
    for number, buffer in enumerate(buffers):
        begin, done = spans[number].start, 0
        while done < len(buffer):
            try:
                done += os.pwrite(fd, buffer[done : done + _PIECE], begin + done)
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                _fill_mapped(fd, size, begin + done, buffer[done:])
                break


def _fill_mapped(fd: int, size: int, begin: int, rest: memoryview) -> None:
    """What is beyond the size that a sandbox may give its files."""
    with mmap.mmap(fd, size) as room, memoryview(room) as view:
        view[begin : begin + len(rest)] = rest


def take(fd: int, size: int) -> mmap.mmap:
    """A parcel's memory as one's own: written pages are copies.

    Where a process bounds its own memory, all that could be written counts; what that leaves no room for is read only.
    """
    try:
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError:
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)


# --- pickling -------------------------------------------------------------------------------------------------


class Buffers:
    """Collects the large buffers of one pickle; small ones stay in it."""

    def __init__(self) -> None:
        self.views: list[memoryview] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """As pickle's `buffer_callback`: false takes it out of the stream."""
        try:
            view = buffer.raw()
        except BufferError:  # not in one piece
            return True
        if len(view) < SHARED_BYTES or len(self.views) >= MOST_BUFFERS:
            return True
        self.views.append(view)
        return False


class _Apart:
    """Stands for large bytes, which pickle would not give to a `buffer_callback`."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (pickle.PickleBuffer(self._value),)


def with_bytes_apart(value: Any) -> Any:  # noqa: ANN401 - whatever is to be pickled
    """The same value, with stand-ins for large bytes in it and in the lists, tuples and dictionaries that it holds."""
    left = [_LOOKED_AT]
    return _apart(value, left, _DEPTH)


def _apart(value: Any, left: list[int], depth: int) -> Any:  # noqa: ANN401 - likewise
    kind = type(value)
    if kind is bytes:
        return _Apart(value) if len(value) >= SHARED_BYTES else value
    if depth == 0 or kind not in (list, tuple, dict) or len(value) > left[0]:
        return value
    left[0] -= len(value)
    if kind is dict:
        found = {key: _apart(item, left, depth - 1) for key, item in value.items()}
        return found if any(found[key] is not value[key] for key in value) else value
    items = [_apart(item, left, depth - 1) for item in value]
    return kind(items) if any(new is not value[at] for at, new in enumerate(items)) else value


def load(pickled: memoryview, sizes: list[int], memory: Any, unpickle: Any = pickle.loads) -> Any:  # noqa: ANN401
    """The value; `memory` has the buffers: a parcel's, or a copy of one's own of those that were behind the pickle."""
    view = memoryview(memory)
    return unpickle(pickled, buffers=[view[span] for span in places(sizes)[0]])


def copied(sizes: list[int], behind: memoryview) -> bytearray:
    """Buffers that came behind a pickle, in memory that may be written, placed as in a parcel."""
    spans, whole = places(sizes)
    memory, at = bytearray(whole), 0
    for span in spans:
        size = span.stop - span.start
        memory[span] = behind[at : at + size]
        at += size
    return memory
