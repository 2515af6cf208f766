"""Invocations as an ASGI application, for requests that do not take the fast path of `protocol.py`."""

import asyncio

from aliquot.live.gateway.http.asgi import (
    SESSION_HEADER,
    BodyReader,
    Disconnected,
    Receive,
    RequestIds,
    Scope,
    Send,
    check_headers,
    send_response,
)
from aliquot.live.gateway.http.connections import SCOPE_KEY
from aliquot.live.gateway.http.events import EventStream, ResponseLimits, wants_events
from aliquot.live.gateway.http.limits import limit_headers
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.responses import Body, Headers
from aliquot.live.gateway.invocation.exchange import Exchange, Respond, StreamingExchange
from aliquot.live.gateway.invocation.invoke import InvokeHandler
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.trace_context import trace_of

STREAMED = 0  # not an HTTP status: the response is a stream of events


class InvokeRoute:
    """Adapts ASGI to `InvokeHandler.handle`. A response whose client has disconnected is dropped."""

    def __init__(
        self,
        invoke: InvokeHandler,
        bodies: BodyReader,
        request_ids: RequestIds,
        settings: GatewaySettings,
        responses: ResponseLimits,
    ) -> None:
        self._invoke = invoke
        self._bodies = bodies
        self._request_ids = request_ids
        self._max_bytes = settings.payload_bytes
        self._responses = responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs = scope["headers"]
        headers = dict(pairs)
        response: asyncio.Future[tuple[int, Headers, Body]] = asyncio.get_running_loop().create_future()

        def respond(status: int, headers: Headers, body: Body) -> None:
            if not response.done():
                response.set_result((status, headers, body))

        exchange, events = self._exchange(scope, headers, respond)
        exchange.began_s = asyncio.get_running_loop().time()
        try:
            if len(headers) != len(pairs):
                check_headers(pairs, headers)
            tenant = self._invoke.check_head(exchange)
            if not exchange.answered:
                exchange.body = await self._bodies.read_large(headers, receive, self._max_bytes, tenant)
                self._invoke.handle(exchange)
        except Refusal as refusal:
            exchange.refuse(refusal)
        except Disconnected:
            return
        try:
            status, varying, body = await response
        except asyncio.CancelledError:
            exchange.disconnected()
            raise
        if status == STREAMED and events is not None:
            await events.send(receive, send, varying)
        else:
            await send_response(send, status, varying, body)

    def _exchange(
        self, scope: Scope, headers: dict[bytes, bytes], respond: Respond
    ) -> tuple[Exchange, EventStream | None]:
        """Make the exchange, with an event stream if the client accepts one."""
        request_id = self._request_ids.of(headers.get(b"x-request-id"))
        request = (
            scope["raw_path"],
            scope["query_string"],
            headers.get(b"authorization"),
            headers.get(b"content-type"),
            request_id,
            b"",
            respond,
            headers.get(SESSION_HEADER),
            scope.get(SCOPE_KEY),
            limit_headers(headers),
            trace_of(headers),
        )
        events = None
        if wants_events(headers.get(b"accept")) and scope.get("http_version") != "1.0":
            events = EventStream(self._responses, request_id)
            exchange: Exchange = StreamingExchange(*request, lambda headers: respond(STREAMED, headers, b""), events)
        else:
            exchange = Exchange(*request)
        return exchange, events
