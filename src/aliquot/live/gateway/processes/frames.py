"""Frames between gateway processes and the scheduler's process, over a Unix socket.

A frame is a header and a payload. The number in its header names a connection, a request or a head. The gateway process
chooses these numbers.

| frame | direction | number | payload |
|---|---|---|---|
| START | to the gateway | 0 | `GatewayStart` |
| READY | to the scheduler | 0 | nothing: the gateway accepts connections |
| PING, PONG | both | 0 | nothing |
| STOP | to the gateway | 1: do not wait for responses | nothing: accept no more connections |
| STOPPED | to the scheduler | 0 | nothing: all connections are closed, or the time for it has passed |
| CONNECTED, CLOSED | to the scheduler | connection | nothing |
| EVICT | to the gateway | connection | nothing: close it |
| CALL | to the scheduler | connection | the number of a head (4 bytes), the body |
| TRACED_CALL | to the scheduler | connection | the number of a head, the value of `traceparent` (55 bytes), the body |
| NEW_CALL | to the scheduler | connection | size of the head (4 bytes), `CallHead`, the body |
| READ_AGAIN | to the gateway | connection | nothing: send the call with its head |
| REMEMBER | to the scheduler | head | the connection (8 bytes) whose last call had it |
| REMEMBERED | to the gateway | head | one byte: 1 if calls may name the head |
| ANSWER | to the gateway | connection | `ANSWER_HEAD`, header lines, the first piece of the body |
| NEXT_PIECE, PIECE | both | connection | the next piece of the body |
| OPEN | to the scheduler | request | `RequestScope` |
| WANT | to the gateway | request | nothing: read the next part of the request |
| RECEIVED | to the scheduler | request | one byte of `RECEIVED_…`, a part of the body |
| BEGIN | to the gateway | request | `ResponseBegin` |
| PART | to the gateway | request | one byte: 1 if more follows, a part of the response |
| SENT | to the scheduler | request | nothing: the next part may be sent |
| CANCEL | to the scheduler | request | nothing: the server stops |
| END | to the gateway | request | nothing |
"""

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from msgspec import Struct

from aliquot.core.units import KIB, MIB
from aliquot.live.gateway.http.limits import LimitHeaders
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.trace_context import TraceContext

(
    START, READY, PING, PONG, STOP, STOPPED, CONNECTED, CLOSED, EVICT, CALL, NEW_CALL, READ_AGAIN, REMEMBER, REMEMBERED,
    ANSWER, NEXT_PIECE, PIECE, OPEN, WANT, RECEIVED, BEGIN, PART, SENT, CANCEL, END, TRACED_CALL,
) = range(26)  # fmt: skip

MAX_FRAME_BYTES = MIB
MAX_CALL_BYTES = 64 * KIB  # a larger body is read in parts, when its caller is known
FORCED = 1  # the number of a STOP that does not wait
RECEIVED_LAST, RECEIVED_MORE, RECEIVED_DISCONNECT = b"\0", b"\1", b"\2"
HEAD_NUMBER = struct.Struct("<I")
CONNECTION_NUMBER = struct.Struct("<Q")
ANSWER_HEAD = struct.Struct("<HBIQ")  # status, whether the connection closes, size of the lines, size of the whole body
_HEADER = struct.Struct("<IBQ")  # size of the payload, kind, number

FrameHandler = Callable[[int, bytes], None]

_log = structlog.get_logger("aliquot.gateway")


class GatewayStart(Struct, array_like=True):
    """The settings of a gateway process."""

    settings: GatewaySettings
    count: int  # of gateway processes
    grace_s: float
    certificate: str | None
    certificate_key: str | None


class CallHead(Struct, array_like=True):
    """The head of an invocation."""

    path: bytes
    query: bytes
    authorization: bytes | None
    content_type: bytes | None
    transaction: str
    limits: LimitHeaders | None
    trace: TraceContext | None


class RequestScope(Struct, array_like=True):
    """The head of a request that is passed on as it is."""

    connection: int
    method: str
    path: bytes  # raw
    query: bytes
    scheme: str
    http_version: str
    headers: list[tuple[bytes, bytes]]


class ResponseBegin(Struct, array_like=True):
    """The head of the response to such a request."""

    status: int
    headers: list[tuple[bytes, bytes]]


class FrameConnection(asyncio.Protocol):
    """One end of the connection."""

    def __init__(self, handlers: Mapping[int, FrameHandler]) -> None:
        """`handlers` get the frames by their kind."""
        self._handlers = handlers
        self._rest = b""
        self._transport: asyncio.Transport
        self.lost: Final = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        begin, end, header = 0, len(data), _HEADER.size
        while end - begin >= header:
            size, kind, number = _HEADER.unpack_from(data, begin)
            begin += header
            if size > end - begin:
                begin -= header
                break
            try:
                self._handlers[kind](number, data[begin : begin + size])
            except Exception:  # noqa: BLE001 - an error with one frame must not end the connection
                _log.exception("a frame could not be handled", kind=kind)
            begin += size
        self._rest = data[begin:]
        if len(self._rest) > MAX_FRAME_BYTES + header:
            _log.error("a frame is too large", size=len(self._rest))
            self._transport.abort()

    def send(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        """Send a frame, unless the connection is closed. The event loop writes the frames of one turn together."""
        if not self._transport.is_closing():
            self._transport.write(_HEADER.pack(len(payload), kind, number) + payload)

    def close(self) -> None:
        """Close the connection when all frames are written."""
        self._transport.close()
