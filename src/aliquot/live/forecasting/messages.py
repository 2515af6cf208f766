"""The messages between the server and the forecaster: each is a length and a msgpack message."""

import struct

import msgspec
from msgspec import Struct

from aliquot.core.events import DemandForecast
from aliquot.core.units import MIB
from aliquot.learn.demand.drift import Watched

LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 4 * MIB
_encoder = msgspec.msgpack.Encoder()


class CallsSeen(Struct, frozen=True, array_like=True):
    """Calls of one application at one time, since the epoch."""

    tenant: str
    function: str
    at_s: float
    at_once: int


class ForecasterState(Struct, frozen=True):
    """The version that forecasts, and how well it does."""

    version: int = 0
    error: str = ""  # why the chosen version does not serve
    watched: Watched = Watched()


class ForecasterReport(Struct, frozen=True):
    """The forecaster's state, with a forecast if calls are expected, and the reason to train if there is one."""

    state: ForecasterState
    forecast: DemandForecast | None = None
    retrain: str = ""


seen_decoder: msgspec.msgpack.Decoder[list[CallsSeen]] = msgspec.msgpack.Decoder(list[CallsSeen])
report_decoder: msgspec.msgpack.Decoder[ForecasterReport] = msgspec.msgpack.Decoder(ForecasterReport)


def frame(message: list[CallsSeen] | ForecasterReport) -> bytes:
    """Encode a message with its length."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body
