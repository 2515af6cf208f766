"""The frames between the server and the agent: each is a length and a msgpack message."""

import asyncio
import struct
from typing import Any, TypeVar

import msgspec

from aliquot.core.units import KIB
from aliquot.storage.messages import FromAgent, ToAgent, ViewMessage

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
to_agent_decoder: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
from_agent_decoder: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
view_message_decoder: msgspec.msgpack.Decoder[ViewMessage] = msgspec.msgpack.Decoder(ViewMessage)
MAX_PACKET_BYTES = 128 * KIB


def packet(message: ToAgent | FromAgent | ViewMessage) -> bytes:
    """Encode a message without a length, for sockets that keep packets apart. Every message can be encoded."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:  # a file name or a program's output is not UTF-8
        return _encoder.encode(_readable(msgspec.to_builtins(message)))


def _readable(part: Any) -> Any:  # noqa: ANN401 - any part of a message
    if isinstance(part, str):
        return part.encode(errors="backslashreplace").decode()
    if isinstance(part, dict):
        return {_readable(key): _readable(value) for key, value in part.items()}
    return [_readable(each) for each in part] if isinstance(part, (list, tuple)) else part


def frame(message: ToAgent | FromAgent) -> bytes:
    body = packet(message)
    return _LENGTH.pack(len(body)) + body


async def next_message(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    """Read a message, or return None when the connection is closed. Raises `msgspec.DecodeError`."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return decoder.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
