"""The messages between the server and the forecaster: each is a length and a msgpack message."""

import struct

import msgspec
from msgspec import Struct

from aliquot.core.events import DemandForecast
from aliquot.core.units import MIB

LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 4 * MIB
_encoder = msgspec.msgpack.Encoder()


class CallsSeen(Struct, frozen=True, array_like=True):
    """Calls of one application at one time, since the epoch."""

    tenant: str
    function: str
    at_s: float
    at_once: int


seen_decoder: msgspec.msgpack.Decoder[list[CallsSeen]] = msgspec.msgpack.Decoder(list[CallsSeen])
forecast_decoder: msgspec.msgpack.Decoder[DemandForecast] = msgspec.msgpack.Decoder(DemandForecast)


def frame(message: list[CallsSeen] | DemandForecast) -> bytes:
    """Encode a message with its length."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body
