"""The messages between the server and its expression workers: each is a length and a msgpack message."""

import struct
from typing import TypeAlias

import msgspec
from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.workflow.interpreter import Evaluate, Evaluated
from aliquot.workflow.language import Complaint
from aliquot.workflow.marks import StateMark
from aliquot.workflow.outline import Outline
from aliquot.workflow.values import decode_object, encode_object

MAX_REPLY_BYTES = 4 * MIB  # the event loop decodes it
MAX_DATA_BYTES = 512 * MIB  # limit of a worker's memory
LENGTH = struct.Struct("<I")
READY = b"r"  # the first byte of a worker

_encoder = msgspec.msgpack.Encoder(enc_hook=encode_object)


class EvaluateRequest(Struct, frozen=True, tag=True):
    """Evaluate a phase of a state. The definition is sent once to each worker, and found by its digest later."""

    limit_s: float  # of processor time
    digest: str
    definition: bytes | None
    command: Evaluate


class DefinitionCheckRequest(Struct, frozen=True, tag=True):
    """Check a definition."""

    limit_s: float  # of processor time
    definition: bytes


class CheckedDefinition(Struct, frozen=True, tag=True):
    """The complaints about a definition, the states that call each action or workflow, and its outline."""

    complaints: tuple[Complaint, ...]
    resources: dict[str, tuple[str, ...]] = {}
    outline: Outline = Outline()

    @property
    def is_valid(self) -> bool:
        return all(complaint.warning for complaint in self.complaints)


class DrawRequest(Struct, frozen=True, tag=True):
    """Draw the graph of a checked definition, with the marks of an execution."""

    limit_s: float  # of processor time
    definition: bytes
    marks: dict[str, StateMark]
    title: str


class Drawing(Struct, frozen=True, tag=True):
    """A picture as SVG. It is empty if the graph is too large."""

    svg: bytes


WorkerRequest: TypeAlias = EvaluateRequest | DefinitionCheckRequest | DrawRequest
WorkerReply: TypeAlias = Evaluated | CheckedDefinition | Drawing

request_decoder: msgspec.msgpack.Decoder[WorkerRequest] = msgspec.msgpack.Decoder(WorkerRequest, ext_hook=decode_object)
reply_decoder: msgspec.msgpack.Decoder[WorkerReply] = msgspec.msgpack.Decoder(WorkerReply, ext_hook=decode_object)


def frame(message: WorkerRequest | WorkerReply) -> bytes:
    """Encode a message with its length. Raises UnicodeEncodeError for text with half a character."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body
