"""A run as it goes on, as server-sent events: accepted, each line it prints, and its result in the end.

Events are numbered, and a run's lines always in the same order: who comes again with `Last-Event-ID` is told the rest.
The result's id is `end`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import msgspec

from aliquot.live.gateway.http.refusal import OVERLOADED
from aliquot.live.gateway.http.responses import CORS, Body, Headers, bare_result, pieces_of, record
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
    (b"x-accel-buffering", b"no"),  # a proxy that gathers what it passes on would keep it to the end
)
_KEEP_ALIVE = b": keep-alive\n\n"


def wants_events(accept: bytes | None) -> bool:
    return accept is not None and TYPE in accept.lower()


class EventStream:
    """What is to be told, in a line until the transport has taken it. A run's output is bounded, so the line is."""

    def __init__(self, keep_alive_s: float, transaction: str, *, bare: bool = False, heard: bytes = b"") -> None:
        self._keep_alive_s = keep_alive_s
        self._transaction = transaction
        self.bare = bare  # the result alone, not the record
        self._heard = int(heard) if heard.isdigit() and len(heard) < 19 else -1  # noqa: PLR2004 - what an int holds
        self._lines = 0
        self._waiting: list[tuple[bytes, Body]] = []
        self._over = False
        self._wake = asyncio.Event()

    # --- what happens -------------------------------------------------------------------------------------

    def accepted(self, activation_id: str) -> None:
        self._tell(b"accepted", b"0", b'{"activationId":"%b"}' % activation_id.encode())

    def printed(self, line: str) -> None:
        self._lines += 1
        if self._lines > self._heard:
            self._tell(b"log", b"%d" % self._lines, msgspec.json.encode(line))

    def ended(self, call: Call) -> None:
        """As its record says; or it was refused, or is left to the next server."""
        if call.activation is not None:
            self.result(call.activation)
        else:
            self.fail(call.reason or OVERLOADED)

    def fail(self, why: str) -> None:
        self._tell(b"error", b"", msgspec.json.encode({"error": why, "code": self._transaction}))
        self._close()

    def result(self, activation: Activation) -> None:
        data = bare_result(activation) if self.bare else record(activation, logs=activation.logs)
        self._tell(b"result", END, data)
        self._close()

    def _tell(self, event: bytes, number: bytes, data: Body) -> None:
        if not self._over:
            head = b"event: %b\nid: %b\ndata: " % (event, number) if number else b"event: %b\ndata: " % event
            self._waiting.append((head, data))
            self._wake.set()

    def _close(self) -> None:
        self._over = True
        self._wake.set()

    # --- the telling --------------------------------------------------------------------------------------

    async def send(
        self,
        receive: Receive,
        send: Send,
        headers: Headers,
    ) -> None:
        """Until the end, or until nobody listens any more: the run does not care."""
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers, *CORS]})
        leaving = asyncio.create_task(self._watch(receive))
        try:
            await self._send_all(send)
        except asyncio.CancelledError:  # only a server that stops does that; it is owed an end that can be understood
            self.fail(STOPPING)
            await self._send_all(send)
        finally:
            leaving.cancel()
            self._over = True

    async def _send_all(self, send: Send) -> None:
        while self._waiting or not self._over:
            told, self._waiting = self._waiting, []
            if not told:
                await self._pause(send)
            for piece in _gathered(told):
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
        self._waiting.clear()
        self._close()


def _gathered(told: list[tuple[bytes, Body]]) -> Iterator[bytes]:
    """Many small ones as one, a large one a piece at a time."""
    small: list[bytes] = []
    for head, data in told:
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
    """Line ends in JSON are blanks between its parts; here they would end the event."""
    return b"\ndata: ".join(data.splitlines()) if b"\n" in data or b"\r" in data else data
