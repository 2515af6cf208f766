"""Server-sent events about a run: its acceptance, each line that it prints, and its result.

Events are numbered, and a run's lines always come in the same order. A client that reconnects with `Last-Event-ID`
gets the remaining lines. The result's id is `end`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import msgspec

from aliquot.budgets import Budget, BudgetError, Reservation
from aliquot.live.bodies.large import mapping_of
from aliquot.live.gateway.http.refusal import OVERLOADED, Refusal
from aliquot.live.gateway.http.responses import CORS, Body, Headers, parts_of, pieces_of, record_body, result_body
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.call import Call
from aliquot.live.store.records import Activation

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TYPE = b"text/event-stream"
END = b"end"
STOPPING = "the server is stopping; the run has been accepted, and its record will come"
_MAX_QUEUED_PARTS = 16  # of a result; further ones wait in their sandbox
_OVERHEAD_BYTES = 200  # memory of an event beside its text
NOT_READ = "the events are not read fast enough; connect again with Last-Event-ID ({})"
_HEADERS: Headers = (
    (b"content-type", TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # otherwise a buffering proxy would hold events back until the end
)
_KEEP_ALIVE = b": keep-alive\n\n"


def wants_events(accept: bytes | None) -> bool:
    return accept is not None and TYPE in accept.lower()


class ResponseLimits:
    """The bounds of responses that are being sent: the streams, and the bytes that clients have not read yet."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.keep_alive_s = settings.stream_keep_alive_s
        self.streams = Budget("streams of events", "streams", settings.event_streams)
        self._unread = Budget("responses that are not read yet", "bytes", settings.unread_bytes)

    def reserve(self, tenant: str, body: Body) -> Reservation:
        """Count a body until it is sent. Raises `BudgetError`. Large results of runs are counted elsewhere."""
        size = sum(len(part) for part in parts_of(body) if not (isinstance(part, memoryview) and mapping_of(part)))
        return self._unread.reserve(tenant, _OVERHEAD_BYTES + size)


class EventStream:
    """A queue of events for one client. It ends with an error when the namespace's queues have become too long."""

    def __init__(self, limits: ResponseLimits, transaction: str, *, bare: bool = False, last_id: bytes = b"") -> None:
        self._limits = limits
        self._tenant = ""
        self._reserved: Reservation | None = None
        self._transaction = transaction
        self._bare = bare  # send the result alone, not the record
        # The number of the last line that the client has seen.
        self._last_line = int(last_id) if last_id.isdigit() and len(last_id) < 19 else -1  # noqa: PLR2004 - 64 bits
        self._lines = 0
        self._queue: list[tuple[bytes, Body, Reservation | None]] = []
        self._closed = False
        self._held: Callable[[bool], None] | None = None  # lets a run go on that waits for the client
        self._wake = asyncio.Event()

    def open(self, tenant: str) -> None:
        """Count the stream in the namespace's part. Raises a 429."""
        try:
            self._reserved = self._limits.streams.reserve(tenant, 1)
        except BudgetError as error:
            raise Refusal(429, str(error)) from error
        self._tenant = tenant

    @property
    def closed(self) -> bool:
        return self._closed

    # --- adding events ------------------------------------------------------------------------------------

    def accepted(self, activation_id: str, *, bare: bool) -> None:
        """Send the id of the accepted call. `bare` ends the stream with the result alone, not the record."""
        self._bare = bare
        self._add(b"accepted", b"0", b'{"activationId":"%b"}' % activation_id.encode())

    def printed(self, line: str) -> None:
        self._lines += 1
        if self._lines > self._last_line:
            self._add(b"log", b"%d" % self._lines, msgspec.json.encode(line))

    def part(self, data: bytes, taken: Callable[[bool], None]) -> None:
        """Send a part of the result. `taken` is called when the client has read enough of those before."""
        self._add(b"part", b"", data)
        if self._closed:
            taken(False)
        elif len(self._queue) < _MAX_QUEUED_PARTS:
            taken(True)
        else:
            self._held = taken

    def _release(self, *, goes_on: bool) -> None:
        """Let a run that waits for the client go on, or stop."""
        held, self._held = self._held, None
        if held is not None:
            held(goes_on)

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
            try:
                reserved = self._limits.reserve(self._tenant, data)
            except BudgetError as error:
                self._give_up(str(error))
                return
            self._queue.append((head, data, reserved))
            self._wake.set()

    def _give_up(self, why: str) -> None:
        """End the stream with an error, because its client does not read."""
        text = msgspec.json.encode({"error": NOT_READ.format(why), "code": self._transaction})
        self._queue = [(b"event: error\ndata: ", text, None)]
        self._close()

    def _close(self) -> None:
        self._closed = True
        self._wake.set()
        self._release(goes_on=False)

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
            self._close()
            self._reserved = None  # the call may refer to the stream for longer

    async def _send_all(self, send: Send) -> None:
        while self._queue or not self._closed:
            events, self._queue = self._queue, []
            if not events:
                await self._pause(send)
            for piece in _pieces(events):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._release(goes_on=not self._closed)
        await send({"type": "http.response.body", "body": b""})

    async def _pause(self, send: Send) -> None:
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), self._limits.keep_alive_s)
        except TimeoutError:
            await send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._queue.clear()
        self._close()


class HistoryStream(EventStream):
    """A stream of the history of an execution, and of the lines that its tasks print.

    The events of the history have their ids. Lines have none, so a client that reconnects misses lines, but no event.
    """

    def happened(self, event: dict[str, Any]) -> None:
        self._add(b"history", b"%d" % event["id"], msgspec.json.encode(event))

    def printed(self, line: str) -> None:
        self._add(b"log", b"", msgspec.json.encode(line))

    def finished(self, status: str) -> None:
        """Send the status with which the execution has ended."""
        self._add(b"end", END, msgspec.json.encode({"status": status}))
        self._close()

    def ended(self, call: Call) -> None:
        """End a stream without an end: the execution goes on elsewhere, or it has sent its end already."""
        if call.parked:
            self.fail(STOPPING)


class TickStream(EventStream):
    """A stream of the state of the platform, each second. A reader that is slow misses ticks."""

    def __init__(self, limits: ResponseLimits, transaction: str) -> None:
        super().__init__(limits, transaction)
        self._sent: dict[str, bytes] = {}

    def tick(self, parts: dict[str, bytes]) -> bool:
        """Send the JSON of the parts that have changed since the last tick. Return whether the reader was ready."""
        if self._queue:
            return False
        changed = {name: part for name, part in parts.items() if self._sent.get(name) != part}
        self._sent = parts
        fields = b",".join(b'"%b":%b' % (name.encode(), part) for name, part in changed.items())
        self._add(b"tick", b"", b"{%b}" % fields)
        return True


def _pieces(events: list[tuple[bytes, Body, Reservation | None]]) -> Iterator[bytes]:
    """Join small events, and cut large ones into pieces."""
    small: list[bytes] = []
    for head, data, _ in events:
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
