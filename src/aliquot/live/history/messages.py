"""The messages between the server and the historian: each is a length and a msgpack message."""

import struct

import msgspec
from msgspec import Struct

from aliquot.core.units import MIB

LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 16 * MIB
REPORT = 0  # the number of an answer that was not asked for: the report of a job


class Viewer(Struct, frozen=True, array_like=True):
    """The namespace that asks, or the operator, whose name is empty."""

    tenant: str = ""
    owner: str = ""  # of its records
    since_s: float = 0.0  # when it was created; what is older belongs to an earlier namespace of its name

    @property
    def is_operator(self) -> bool:
        return not self.tenant


class Search(Struct, frozen=True, tag=True, kw_only=True):
    """Search the calls, the newest first. What is empty does not narrow it."""

    viewer: Viewer
    namespace: str = ""
    name: str = ""  # a part of the function's name
    status: str = ""
    start: str = ""
    device: str = ""
    session: str = ""
    cause: str = ""
    min_duration_s: float = 0.0
    min_wait_s: float = 0.0
    error: str = ""  # a part of the error's text
    since_s: float = 0.0
    upto_s: float = 0.0
    cursor: str = ""
    limit: int = 100


class DecisionList(Struct, frozen=True, tag=True, kw_only=True):
    """List decisions, the newest first."""

    viewer: Viewer
    name: str = ""
    kind: str = ""
    device: str = ""
    call: str = ""
    limit: int = 200


class DeviceSlices(Struct, frozen=True, tag=True, kw_only=True):
    """Tell what the sandboxes of each device did in a time, in epoch seconds."""

    viewer: Viewer
    begin_s: float
    end_s: float


class SeriesOf(Struct, frozen=True, tag=True, kw_only=True):
    """Read counts of calls over time."""

    viewer: Viewer
    names: list[str]
    begin_s: float
    end_s: float
    step_s: int
    namespace: str = ""


class FunctionFigures(Struct, frozen=True, tag=True, kw_only=True):
    """Sum up the calls of a function."""

    viewer: Viewer
    name: str
    namespace: str = ""
    last_s: float = 3600.0


Question = Search | DecisionList | DeviceSlices | SeriesOf | FunctionFigures


class Asked(Struct, frozen=True, array_like=True):
    """A question with its number."""

    number: int
    question: Question


class Answered(Struct, frozen=True, array_like=True):
    """The answer to a question: JSON as the gateway sends it, or the reason for which there is none."""

    number: int
    body: bytes = b""
    error: str = ""


asked_decoder = msgspec.msgpack.Decoder(Asked)
answered_decoder = msgspec.msgpack.Decoder(Answered)
_encoder = msgspec.msgpack.Encoder()


def frame(message: Asked | Answered) -> bytes:
    """Encode a message with its length."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body
