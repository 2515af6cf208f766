"""The HTTP protocol of gateway processes: it passes invocations on, and writes their answers."""

from typing import Any, ClassVar, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from aliquot.live.gateway.http.limits import limit_headers
from aliquot.live.gateway.http.refusal import CLOSE
from aliquot.live.gateway.invocation.exchange import Exchange
from aliquot.live.gateway.invocation.heads import KnownHead
from aliquot.live.gateway.invocation.protocol import RESPONSE_TAIL, GatewayProtocol
from aliquot.live.gateway.processes.frames import ANSWER_HEAD
from aliquot.live.invocations.trace_context import trace_of

_CLOSE_LINE = b"%b: %b\r\n" % CLOSE[0]


class Scheduler(Protocol):
    """The connection to the scheduler's process."""

    def next_number(self) -> int: ...
    def handle(self, exchange: Exchange) -> None: ...
    def ask_for_piece(self, number: int) -> None: ...


class ForwardingProtocol(GatewayProtocol):
    """The HTTP protocol of one connection of a gateway process."""

    scheduler: ClassVar[Scheduler]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **kwargs)
        self.number = self.scheduler.next_number()
        self._known: tuple[KnownHead, bytes] | None = None  # the known head of the last call, and its bytes
        self._left_bytes = 0  # of a response that comes in pieces

    def _take_known_head(self, head: KnownHead, data: bytes, traceparent: bytes) -> bool:
        self._known = head, data[: len(data) - head.length]
        return super()._take_known_head(head, data, traceparent)

    def evict_forwarded(self, _: bytes) -> None:
        """Close the connection at once, because there are too many."""
        self.evict()

    def read_again(self, _: bytes) -> None:
        """Pass on the call once more, with its head, because the key or the action may have changed."""
        cycle = self._unanswered
        if cycle is None or self._known is None:
            return
        known, data = self._known
        known.caller = b""
        cycle.exchange = _read(data, cycle.exchange)
        self.scheduler.handle(cycle.exchange)

    def answer(self, payload: bytes) -> None:
        """Write the answer to a call, or its head and the first piece."""
        cycle, self._unanswered, self._known = self._unanswered, None, None
        if cycle is None:
            return
        cycle.exchange.answered = True
        if self.transport.is_closing():
            cycle.response_complete = True
            return
        status, closes, lines_size, size = ANSWER_HEAD.unpack_from(payload)
        begin = ANSWER_HEAD.size
        lines, body = payload[begin : begin + lines_size], payload[begin + lines_size :]
        if closes:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines += _CLOSE_LINE
        self.transport.write(STATUS_LINE[status] + lines + RESPONSE_TAIL % size + body)
        self._left_bytes = size - len(body)
        if self._left_bytes:
            self._sending = cycle
            self._send_more()
        else:
            self._end_response(cycle)

    def piece(self, data: bytes) -> None:
        """Write the next piece of a large response."""
        cycle = self._sending
        if cycle is None or self.transport.is_closing():
            return
        self.transport.write(data)
        self._left_bytes -= len(data)
        if self._left_bytes > 0:
            self._send_more()
        else:
            self._sending = None
            self._end_response(cycle)

    def _send_more(self) -> None:
        """Ask for the next piece, unless the client has to read first. `resume_writing` asks again."""
        if not self.flow.write_paused and not self.transport.is_closing():
            self.scheduler.ask_for_piece(self.number)


class _HeadFields:
    """The parts of a head, as the parser finds them."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value


def _read(head: bytes, exchange: Exchange) -> Exchange:
    """Return the exchange of a known head with all of its fields."""
    fields = _HeadFields()
    httptools.HttpRequestParser(fields).feed_data(head)
    path, _, query = fields.url.partition(b"?")
    headers = fields.headers
    return Exchange(
        *(path, query, headers.get(b"authorization"), headers.get(b"content-type"), exchange.transaction),
        body=exchange.body,
        respond=exchange.respond,
        connection=exchange.connection,
        limits=limit_headers(headers),
        trace=trace_of(headers),
    )
