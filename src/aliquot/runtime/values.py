"""Pickles with out-of-band buffers: in shared memory between sandboxes of a node, or behind the pickle.

A body is a plain pickle or an envelope. An envelope is a head with the sizes of the buffers, the pickle, and then the
buffers, unless they are in a shared buffer. A shared buffer is one piece of shared memory with the buffers in order,
each at a multiple of 64 bytes. Once it has been handed over it cannot be written any more. A receiver maps it
privately: its changes stay its own, and only the pages that it changes are copied.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import struct
from typing import Any

from .units import KIB, MIB

MIN_SHARED_BYTES = 64 * KIB  # smaller buffers stay in the pickle
MAX_BUFFERS = 4096  # of one value; further ones stay in the pickle

_MAGIC = b"\x00ALQ"  # no pickle begins like this
_HEAD = struct.Struct("<4sIQ")  # magic, number of buffers, bytes of the pickle
_SIZE = struct.Struct("<Q")
_ALIGNMENT = 64
_MAX_DEPTH = 4
_WRITE_BYTES = 64 * MIB
_MAX_VALUES = 1000  # that are searched for large bytes


def is_envelope(body: bytes | memoryview) -> bool:
    return bytes(body[:4]) == _MAGIC


def seal_envelope(pickled: bytes, sizes: list[int]) -> bytes:
    """Return an envelope without the buffers."""
    return b"".join((_HEAD.pack(_MAGIC, len(sizes), len(pickled)), *map(_SIZE.pack, sizes), pickled))


def open_envelope(body: bytes | memoryview) -> tuple[memoryview, list[int], memoryview]:
    """Return the pickle, the sizes of its buffers, and the bytes behind it. Raises `ValueError`."""
    view = memoryview(body)
    if len(view) < _HEAD.size:
        raise ValueError("the envelope is cut off")
    _, count, length = _HEAD.unpack_from(view)
    begin = _HEAD.size + count * _SIZE.size
    if begin + length > len(view):
        raise ValueError("the envelope is cut off")
    if count > MAX_BUFFERS:
        raise ValueError(f"the envelope has {count} buffers; it takes {MAX_BUFFERS} at most")
    sizes = [_SIZE.unpack_from(view, _HEAD.size + number * _SIZE.size)[0] for number in range(count)]
    return view[begin : begin + length], sizes, view[begin + length :]


def layout(sizes: list[int]) -> tuple[list[slice], int]:
    """Return the position of each buffer in a shared buffer, and the size of the shared buffer."""
    spans, end = [], 0
    for size in sizes:
        spans.append(slice(end, end + size))
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return spans, end


def inline_buffers(body: bytes | memoryview, shared: memoryview) -> bytes:
    """Return an envelope with its buffers behind it, for the disk and for receivers without shared memory."""
    return b"".join((body, *(shared[span] for span in layout(open_envelope(body)[1])[0])))


def fill(fd: int, buffers: list[memoryview]) -> None:
    """Write the buffers into a shared buffer, each at its position.

    They are written, not mapped, so the kernel need not clear pages first. That halves the cost.
    """
    spans, size = layout([len(buffer) for buffer in buffers])
    for number, buffer in enumerate(buffers):
        begin, done = spans[number].start, 0
        while done < len(buffer):
            try:
                done += os.pwrite(fd, buffer[done : done + _WRITE_BYTES], begin + done)
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                _fill_mapped(fd, size, begin + done, buffer[done:])
                break


def _fill_mapped(fd: int, size: int, begin: int, rest: memoryview) -> None:
    """Copy the part of a buffer that lies beyond the sandbox's limit for file sizes."""
    with mmap.mmap(fd, size) as room, memoryview(room) as view:
        view[begin : begin + len(rest)] = rest


def map_private(fd: int, size: int) -> mmap.mmap:
    """Map a shared buffer so that written pages become copies.

    A process with a limit on its memory has all pages counted that could be written. If they exceed the limit, the
    memory is mapped read-only.
    """
    try:
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError:
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)


# --- pickling -------------------------------------------------------------------------------------------------


class LargeBuffers:
    """Collects the large buffers of one pickle. Small ones stay in the pickle."""

    def __init__(self) -> None:
        self.views: list[memoryview] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """Serve as pickle's `buffer_callback`: return false to take a buffer out of the stream."""
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if len(view) < MIN_SHARED_BYTES or len(self.views) >= MAX_BUFFERS:
            return True
        self.views.append(view)
        return False


class _LargeBytes:
    """A stand-in for large bytes, which pickle does not give to a `buffer_callback`."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (pickle.PickleBuffer(self._value),)


def wrap_large_bytes(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return the value with stand-ins for large bytes, also inside its lists, tuples and dictionaries."""
    remaining = [_MAX_VALUES]
    return _replace_bytes(value, remaining, _MAX_DEPTH)


def _replace_bytes(value: Any, remaining: list[int], depth: int) -> Any:  # noqa: ANN401 - likewise
    kind = type(value)
    if kind is bytes:
        return _LargeBytes(value) if len(value) >= MIN_SHARED_BYTES else value
    if depth == 0 or kind not in (list, tuple, dict) or len(value) > remaining[0]:
        return value
    remaining[0] -= len(value)
    if kind is dict:
        found = {key: _replace_bytes(item, remaining, depth - 1) for key, item in value.items()}
        return found if any(found[key] is not value[key] for key in value) else value
    items = [_replace_bytes(item, remaining, depth - 1) for item in value]
    return kind(items) if any(new is not value[at] for at, new in enumerate(items)) else value


def load(pickled: memoryview, sizes: list[int], memory: Any, unpickle: Any = pickle.loads) -> Any:  # noqa: ANN401
    """Unpickle a value. `memory` holds its buffers: a shared buffer, or what `copy_buffers` returned."""
    view = memoryview(memory)
    return unpickle(pickled, buffers=[view[span] for span in layout(sizes)[0]])


def copy_buffers(sizes: list[int], buffers: memoryview) -> bytearray:
    """Copy the buffers behind a pickle into writable memory, with the layout of a shared buffer."""
    spans, whole = layout(sizes)
    memory, at = bytearray(whole), 0
    for span in spans:
        size = span.stop - span.start
        memory[span] = buffers[at : at + size]
        at += size
    return memory
