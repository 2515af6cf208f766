"""One invocation request and its one response, independent of the transport.

A transport creates an `Exchange` with the request and a `respond` function, and calls `InvokeHandler.handle`. From then
on:

- `respond(status, headers, body)` is called exactly once, now or later, on the event loop. It must not raise. `headers`
  are those that vary. The transport adds `responses.CORS` and the content's length.
- The transport calls `disconnected()` when the client has disconnected. The run continues, and `respond` is not called.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from aliquot.live.gateway.http.refusal import OVERLOADED, Refusal, not_promised
from aliquot.live.gateway.http.responses import JSON, PICKLE, SAFETENSORS, Body, Headers, record_body
from aliquot.live.gateway.invocation.kernel_answers import misfit_refusal
from aliquot.live.invocations.call import Call, Follower, SharedArguments
from aliquot.live.node.base import Outcome, Status
from aliquot.live.node.shared_buffers import NodeBuffers, SharedBufferError
from aliquot.live.store.records import KERNEL

if TYPE_CHECKING:
    import asyncio

    from aliquot.live.gateway.http.auth import InvocationTarget
    from aliquot.live.gateway.http.connections import Connection
    from aliquot.live.gateway.http.deadlines import Deadlines
    from aliquot.live.gateway.http.events import EventStream
    from aliquot.live.gateway.http.limits import LimitHeaders
    from aliquot.live.gateway.http.query import InvokeOptions
    from aliquot.live.invocations.rate_limits import RateLimiter
    from aliquot.live.invocations.trace_context import TraceContext
    from aliquot.live.store.records import Activation

Respond = Callable[[int, Headers, Body], None]

NO_LOGS = b"[]"
_HTTP_STATUS = (200, 502, 502, 500)  # by the activation's status
_GATEWAY_TIMEOUT = 504  # of a call that ended because its promise was broken
_STATUS_HEADER = tuple((b"x-aliquot-status", b"%d" % status) for status in Status)
_HAS_OBJECTS = (b"x-aliquot-objects", b"true")  # the record has the output with its objects
_PICKLE_TYPE = (b"content-type", PICKLE)
_SAFETENSORS_TYPE = (b"content-type", SAFETENSORS)
_SHARED = re.compile(rb"[^;]+; sandbox=([0-9a-f]{32})(?:; buffer=([0-9]{1,5}))?")


class Exchange:
    """A request as the transport has read it, and the state that `InvokeHandler` keeps until the response."""

    __slots__ = (
        "answered", "authorization", "began_s", "body", "call", "connection", "content_type", "limiter", "limits",
        "options", "path", "query", "respond", "session", "target", "timer", "trace", "transaction", "waiting",
    )  # fmt: skip
    followers: ClassVar[tuple[Follower, ...]] = ()  # receive the events of the call
    streams: ClassVar[bool] = False  # the client may follow the run

    def __init__(
        self,
        path: bytes,  # raw, without the query
        query: bytes,
        authorization: bytes | None,
        content_type: bytes | None,
        transaction: str,
        body: bytes | memoryview,
        respond: Respond,
        session: bytes | None = None,  # the header; requests on the fast path have none
        connection: Connection | None = None,
        limits: LimitHeaders | None = None,
        trace: TraceContext | None = None,
    ) -> None:
        self.path = path
        self.limits = limits
        self.trace = trace
        self.connection = connection
        self.query = query
        self.authorization = authorization
        self.content_type = content_type
        self.transaction = transaction
        self.body = body
        self.respond = respond
        self.session = session
        self.answered = False
        self.began_s: float | None = None  # when its head was read, by the loop's clock; None if the body came with it
        self.timer: asyncio.TimerHandle | None = None
        self.waiting: Deadlines[Exchange] | None = None
        # Set by `InvokeHandler` before the call begins.
        self.call: Call
        self.target: InvocationTarget
        self.limiter: RateLimiter
        self.options: InvokeOptions

    def open_stream(self, tenant: str) -> None:
        """Count the stream of events that the client asks for, if it does. Raises a 429."""

    def disconnected(self) -> None:
        """Drop the response, because the client has disconnected."""
        self.answered = True
        self.stop_waiting()

    def refuse(self, refusal: Refusal, *more: tuple[bytes, bytes]) -> None:
        """Respond with the refusal, and with `more` headers."""
        if self.answered:
            return
        self.answered = True
        self.stop_waiting()
        transaction = self.transaction
        headers = (JSON, (b"x-request-id", transaction.encode()), *refusal.headers, *more)
        self.respond(refusal.status, headers, refusal.body(transaction))

    def acknowledge(self) -> None:
        """Respond with the activation's id. The caller reads the record later."""
        if self.answered:
            return
        self.answered = True
        activation_id = self.call.id.encode()
        self.respond(202, self._headers(JSON, activation_id), b'{"activationId":"%b"}' % activation_id)

    def drop_call(self) -> None:
        """Forget the call. A connection keeps its last exchange, which must not keep the call's body alive."""
        self.call.done = None  # breaks the reference cycle, so that bodies are freed at once
        del self.call

    def done(self, call: Call) -> None:
        """Count the ended call, and respond with its result if the client still waits."""
        self.drop_call()
        self.limiter.end()
        self.target.metrics.count(call)
        if self.answered:
            return
        self.answered = True
        if self.waiting is not None:
            self.stop_waiting()
        outcome, activation = call.outcome, call.activation
        if outcome is None or activation is None:
            self.answered = False
            refusal = None if call.objective is None else call.objective.refusal
            self.refuse(
                Refusal(503, call.reason or OVERLOADED) if refusal is None else not_promised(call.reason, refusal)
            )
            return
        if outcome.status is Status.APPLICATION_ERROR and (misfit := misfit_refusal(outcome)) is not None:
            self.answered = False
            self.refuse(misfit, (b"x-openwhisk-activation-id", call.id.encode()))
            return
        if call.pickled:
            if self._respond_pickled(call, outcome, activation):
                return
            headers = (*self._headers(JSON, call.id.encode()), _STATUS_HEADER[outcome.status])
            headers += ((b"x-aliquot-failure", outcome.failure.encode()),) if outcome.failure else ()
        else:
            headers = self._headers(JSON, call.id.encode())
            if outcome.pickled is not None and call.resolved.workflow:
                headers = (*headers, _HAS_OBJECTS)
        bare = self.options.result or outcome.result[:1] == b"["
        # The logs of a composition or a workflow are the ids of its components, which are known already.
        logs = activation.logs if call.resolved.composite or call.resolved.workflow else NO_LOGS
        body = outcome.result if bare else record_body(activation, logs=logs)
        dropped = outcome.timed_out and call.objective is not None and call.objective.dropped
        self.respond(_GATEWAY_TIMEOUT if dropped else _HTTP_STATUS[outcome.status], headers, body)

    def _respond_pickled(self, call: Call, outcome: Outcome, activation: Activation) -> bool:
        """Respond with the pickled result, or return False if there is none. It may be in a shared buffer."""
        kernel = call.action.exec.kind == KERNEL
        content_type, body = _SAFETENSORS_TYPE if kernel else _PICKLE_TYPE, activation.pickled
        reply_buffers = call.shared.reply_buffers if call.shared is not None else None
        if outcome.shared_buffer is not None and reply_buffers is not None and outcome.pickled is not None:
            content_type = (b"content-type", b"%b; buffer=%d" % (PICKLE, reply_buffers.put(outcome.shared_buffer)))
            body = outcome.pickled
        if body is None:
            return False
        headers = self._headers(content_type, call.id.encode())
        self.respond(_HTTP_STATUS[outcome.status], (*headers, _STATUS_HEADER[outcome.status]), body)
        return True

    def stop_waiting(self) -> None:
        """End the wait for the result, whichever timer it has."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.waiting is not None:
            self.waiting.discard(self)
            self.waiting = None

    def _headers(self, content_type: tuple[bytes, bytes], activation_id: bytes) -> Headers:
        return (
            content_type,
            (b"x-request-id", self.transaction.encode()),
            (b"x-openwhisk-activation-id", activation_id),
        )


class StreamingExchange(Exchange):
    """An exchange whose client follows the run. The call is accepted like a non-blocking one, and then followed.

    The response is `stream(headers)` once the call is durable. Before that it may be refused like any other.
    """

    __slots__ = ("events", "stream")
    streams = True

    def __init__(
        self,
        path: bytes,
        query: bytes,
        authorization: bytes | None,
        content_type: bytes | None,
        transaction: str,
        body: bytes | memoryview,
        respond: Respond,
        session: bytes | None,
        connection: Connection | None,
        limits: LimitHeaders | None,
        trace: TraceContext | None,
        stream: Callable[[Headers], None],
        events: EventStream,
    ) -> None:
        super().__init__(
            path, query, authorization, content_type, transaction, body, respond, session, connection, limits, trace
        )
        self.stream = stream
        self.events = events

    @property
    def followers(self) -> tuple[Follower, ...]:  # type: ignore[override] # a class attribute in `Exchange`
        return (self.events,) if self.options.blocking else ()

    def open_stream(self, tenant: str) -> None:
        """Count the stream of events. Raises a 429."""
        if self.options.blocking:
            self.events.open(tenant)

    def acknowledge(self) -> None:
        """Start the stream, or respond with the id if the call is not blocking."""
        if not self.options.blocking:
            super().acknowledge()
        elif not self.answered:
            self.answered = True
            self.events.accepted(self.call.id, bare=self.options.result)
            request_id = (b"x-request-id", self.transaction.encode())
            self.stream((request_id, (b"x-openwhisk-activation-id", self.call.id.encode())))

    def done(self, call: Call) -> None:
        """Count the ended call, and send its result as the last event."""
        super().done(call)
        if self.options.blocking:
            self.events.ended(call)


def shared_arguments(
    content_type: bytes, body: bytes | memoryview, node_buffers: NodeBuffers | None
) -> SharedArguments:
    """Find the shared buffers that the content type of a pickled body names.

    In `application/x-aliquot-pickle; sandbox=TOKEN; buffer=3` the token names the calling sandbox, which can take the
    result's buffers. Number 3 is its shared buffer with the arguments. Raises a 400 for buffers that cannot be taken.
    """
    found = _SHARED.fullmatch(content_type)
    own = node_buffers.find(found[1].decode()) if found is not None and node_buffers is not None else None
    if found is None or found[2] is None:
        return SharedArguments(reply_buffers=own)
    text = "The shared buffer with the arguments cannot be taken: {}."
    if own is None:
        raise Refusal(400, text.format("the sandbox is not of this platform"))
    try:
        buffer = own.hand_on(int(found[2]), body)
    except (SharedBufferError, ValueError) as error:
        raise Refusal(400, text.format(error)) from error
    return SharedArguments(buffer=buffer, reply_buffers=own)
