"""Server-sent events about a run: its acceptance, each line that it prints, and its result.

Events are numbered, and a run's lines always come in the same order. A client that reconnects with `Last-Event-ID`
gets the remaining lines. The result's id is `end`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import msgspec

from aliquot.live.gateway.http.refusal import OVERLOADED
from aliquot.live.gateway.http.responses import CORS, Body, Headers, pieces_of, record_body, result_body
from aliquot.live.invocations.call import Call
from aliquot.live.store.records import Activation

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TYPE = b"text/event-stream"
END = b"end"
STOPPING = "the server is stopping; the run has been accepted, and its record will come"
_HEADERS: Headers = (
    (b"content-type", TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # otherwise a buffering proxy would hold events back until the end
)
_KEEP_ALIVE = b": keep-alive\n\n"


def wants_events(accept: bytes | None) -> bool:
    return accept is not None and TYPE in accept.lower()


class EventStream:
    """A queue of events for one client. Its length is bounded because a run's output is."""

    def __init__(self, keep_alive_s: float, transaction: str, *, bare: bool = False, last_id: bytes = b"") -> None:
        self._keep_alive_s = keep_alive_s
        self._transaction = transaction
        self._bare = bare  # send the result alone, not the record
        # The number of the last line that the client has seen.
        self._last_line = int(last_id) if last_id.isdigit() and len(last_id) < 19 else -1  # noqa: PLR2004 - 64 bits
        self._lines = 0
        self._queue: list[tuple[bytes, Body]] = []
        self._closed = False
        self._wake = asyncio.Event()

    # --- adding events ------------------------------------------------------------------------------------

    def accepted(self, activation_id: str, *, bare: bool) -> None:
        """Send the id of the accepted call. `bare` ends the stream with the result alone, not the record."""
        self._bare = bare
        self._add(b"accepted", b"0", b'{"activationId":"%b"}' % activation_id.encode())

    def printed(self, line: str) -> None:
        self._lines += 1
        if self._lines > self._last_line:
            self._add(b"log", b"%d" % self._lines, msgspec.json.encode(line))

    def ended(self, call: Call) -> None:
        """Send the result. A call without a record was refused, or the next server will run it."""
        if call.activation is not None:
            self.result(call.activation)
        else:
            self.fail(call.reason or OVERLOADED)

    def fail(self, why: str) -> None:
        self._add(b"error", b"", msgspec.json.encode({"error": why, "code": self._transaction}))
        self._close()

    def result(self, activation: Activation) -> None:
        data = result_body(activation) if self._bare else record_body(activation, logs=activation.logs)
        self._add(b"result", END, data)
        self._close()

    def _add(self, event: bytes, number: bytes, data: Body) -> None:
        if not self._closed:
            head = b"event: %b\nid: %b\ndata: " % (event, number) if number else b"event: %b\ndata: " % event
            self._queue.append((head, data))
            self._wake.set()

    def _close(self) -> None:
        self._closed = True
        self._wake.set()

    # --- sending ------------------------------------------------------------------------------------------

    async def send(
        self,
        receive: Receive,
        send: Send,
        headers: Headers,
    ) -> None:
        """Send events until the last one or until the client disconnects. The run itself continues."""
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers, *CORS]})
        watching = asyncio.create_task(self._watch(receive))
        try:
            await self._send_all(send)
        except asyncio.CancelledError:  # the server is stopping: tell the client so
            self.fail(STOPPING)
            await self._send_all(send)
        finally:
            watching.cancel()
            self._closed = True

    async def _send_all(self, send: Send) -> None:
        while self._queue or not self._closed:
            events, self._queue = self._queue, []
            if not events:
                await self._pause(send)
            for piece in _pieces(events):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _pause(self, send: Send) -> None:
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), self._keep_alive_s)
        except TimeoutError:
            await send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._queue.clear()
        self._close()


def _pieces(events: list[tuple[bytes, Body]]) -> Iterator[bytes]:
    """Join small events, and cut large ones into pieces."""
    small: list[bytes] = []
    for head, data in events:
        small.append(head)
        if isinstance(data, bytes):
            small += (_in_lines(data), b"\n\n")
            continue
        yield b"".join(small)
        for piece in pieces_of(data):
            yield _in_lines(bytes(piece))
        small = [b"\n\n"]
    yield b"".join(small)


def _in_lines(data: bytes) -> bytes:
    """Prefix every line with `data:`. A line end in JSON is only white space, but here it would end the event."""
    return b"\ndata: ".join(data.splitlines()) if b"\n" in data or b"\r" in data else data
