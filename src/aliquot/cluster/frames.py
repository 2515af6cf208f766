"""Frames between head and agents: a message is sent as one or more frames, each with a length before it.

    4 bytes, little-endian    the bytes of this frame; the top bit is set if the message goes on in the next frame
    n bytes                   a part of the message

A frame has at most a mebibyte. So a length that is garbage is found out before any memory is taken for it, and a
receiver that counts arriving bytes sees a large message as life. The parts hold no state but their order.
"""

import struct
from collections.abc import Iterator

from aliquot.core.units import KIB, MIB

MAX_FRAME_BYTES = MIB
MAX_MESSAGE_BYTES = 512 * MIB
MAX_GREETING_BYTES = 64 * KIB  # of a message from a peer that has not shown who it is
_HEAD = struct.Struct("<I")
_MORE = 1 << 31


class FrameError(Exception):
    """The peer has sent bytes that are no frame, or a message that is too large. The connection cannot go on."""


def frame_message(message: bytes) -> Iterator[bytes]:
    """Yield the bytes to send for a message, a frame at a time."""
    size = len(message)
    if size <= MAX_FRAME_BYTES:
        yield _HEAD.pack(size) + message
        return
    if size > MAX_MESSAGE_BYTES:
        raise FrameError(f"a message has {size} bytes, and at most {MAX_MESSAGE_BYTES} can be sent")
    view = memoryview(message)
    for at in range(0, size, MAX_FRAME_BYTES):
        part = view[at : at + MAX_FRAME_BYTES]
        more = _MORE if at + MAX_FRAME_BYTES < size else 0
        yield _HEAD.pack(len(part) | more) + part


class FrameReader:
    """Turns arriving bytes into messages."""

    def __init__(self) -> None:
        self.max_message_bytes = MAX_GREETING_BYTES
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._size = 0  # of the parts

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete with this data. Raises `FrameError`."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(buffer)
            more, length = bool(length & _MORE), length & ~_MORE
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"a frame says that it has {length} bytes, and at most {MAX_FRAME_BYTES} are taken")
            if self._size + length > self.max_message_bytes:
                raise FrameError(f"a message has more than {self.max_message_bytes} bytes")
            end = _HEAD.size + length
            if len(buffer) < end:
                return
            part = bytes(memoryview(buffer)[_HEAD.size : end])
            del buffer[:end]
            if more or self._parts:
                self._parts.append(part)
                self._size += length
                if more:
                    continue
                part = b"".join(self._parts)
                self._parts, self._size = [], 0
            yield part

    def take_rest(self) -> bytes:
        """Return the bytes that have arrived after the last message, for a connection that carries no frames now."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
