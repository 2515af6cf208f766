"""How the server and the agent write to each other: records as msgpack, each after its length."""

import asyncio
import struct
from typing import TypeVar

import msgspec

from aliquot.storage.messages import FromAgent, Handed, ToAgent

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
handed: msgspec.msgpack.Decoder[Handed] = msgspec.msgpack.Decoder(Handed)
packet = _encode  # what goes with a descriptor: its socket keeps messages apart by itself
PACKET_BYTES = 2**17


def frame(message: ToAgent | FromAgent) -> bytes:
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


async def next_message(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    """None when the other side has hung up."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return decoder.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
