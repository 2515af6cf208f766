"""How the server and the agent write to each other: records as msgpack, each after its length."""

import asyncio
import struct
from typing import Any, TypeVar

import msgspec

from aliquot.storage.messages import FromAgent, ToAgent, ViewMessage

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
to_agent_decoder: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
from_agent_decoder: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
view_message_decoder: msgspec.msgpack.Decoder[ViewMessage] = msgspec.msgpack.Decoder(ViewMessage)
PACKET_BYTES = 2**17


def packet(message: ToAgent | FromAgent | ViewMessage) -> bytes:
    """What goes with a descriptor: its socket keeps messages apart by itself. Every message can be written."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:  # a name of a file, or what a program has said, was no UTF-8
        return _encoder.encode(_readable(msgspec.to_builtins(message)))


def _readable(part: Any) -> Any:  # noqa: ANN401 - whatever messages are made of
    if isinstance(part, str):
        return part.encode(errors="backslashreplace").decode()
    if isinstance(part, dict):
        return {_readable(key): _readable(value) for key, value in part.items()}
    return [_readable(each) for each in part] if isinstance(part, (list, tuple)) else part


def frame(message: ToAgent | FromAgent) -> bytes:
    body = packet(message)
    return _LENGTH.pack(len(body)) + body


async def next_message(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    """None when the other side has hung up. Raises `msgspec.DecodeError` of what is no message."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return decoder.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
