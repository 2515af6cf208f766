"""One invocation request and its one answer, whatever the transport.

A transport fills in the request, gives `respond`, and calls `Invoke.handle`. From then on:

- `respond(status, headers, body)` is called exactly once, now or later, on the event loop; it must not raise. `headers`
  are those that differ from answer to answer: the transport adds `answers.CORS` and the content's length.
- `disconnected()` tells that nobody is there to answer any more: the run goes on, `respond` will not be called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from aliquot.live.gateway.http.refusal import OVERLOADED, Refusal
from aliquot.live.gateway.http.responses import JSON, PICKLE, Body, Headers, record_body
from aliquot.live.invocations.call import Call, Follower
from aliquot.live.node.base import Status

if TYPE_CHECKING:
    import asyncio

    from aliquot.live.gateway.http.auth import InvocationTarget
    from aliquot.live.gateway.http.deadlines import Deadlines
    from aliquot.live.gateway.http.query import InvokeOptions
    from aliquot.live.invocations.rate_limits import RateLimiter

Respond = Callable[[int, Headers, Body], None]

NO_LOGS = b"[]"
SESSION = b"x-aliquot-session"  # the header that names one
_HTTP_STATUS = (200, 502, 502, 500)  # by the activation's
_STATUS_HEADER = tuple((b"x-aliquot-status", b"%d" % status) for status in Status)
_PICKLE_TYPE = (b"content-type", PICKLE)


class Exchange:
    """The request as the transport read it, then what `Invoke` keeps of it until the answer."""

    __slots__ = (
        "answered", "authorization", "body", "call", "content_type", "limiter", "options", "path", "query", "respond",
        "session", "target", "timer", "transaction", "waiting",
    )  # fmt: skip
    followers: ClassVar[tuple[Follower, ...]] = ()  # of the call, if it is not only to be waited for

    def __init__(
        self,
        path: bytes,  # raw, without the query
        query: bytes,
        authorization: bytes | None,
        content_type: bytes | None,
        transaction: str,
        body: bytes | memoryview,
        respond: Respond,
    ) -> None:
        self.path = path
        self.query = query
        self.authorization = authorization
        self.content_type = content_type
        self.transaction = transaction
        self.body = body
        self.respond = respond
        self.session: bytes | None = None  # the header, of which the short way knows nothing
        self.answered = False
        self.timer: asyncio.TimerHandle | None = None
        self.waiting: Deadlines[Exchange] | None = None
        # Set by `Invoke.handle` before a call is made.
        self.call: Call
        self.target: InvocationTarget
        self.limiter: RateLimiter
        self.options: InvokeOptions

    def disconnected(self) -> None:
        self.answered = True
        self.stop_waiting()

    def refuse(self, refusal: Refusal, *more: tuple[bytes, bytes]) -> None:
        if self.answered:
            return
        self.answered = True
        self.stop_waiting()
        transaction = self.transaction
        headers = (JSON, (b"x-request-id", transaction.encode()), *refusal.headers, *more)
        self.respond(refusal.status, headers, refusal.body(transaction))

    def acknowledge(self) -> None:
        """The caller gets the id, and reads the record later."""
        if self.answered:
            return
        self.answered = True
        activation_id = self.call.id.encode()
        self.respond(202, self._headers(JSON, activation_id), b'{"activationId":"%b"}' % activation_id)

    def done(self, call: Call) -> None:
        """The call has ended. What is counted is counted, whether or not somebody still listens."""
        call.done = None  # the two would hold each other, and what they hold, until the collector comes
        del self.call  # a connection remembers its last request, and must not keep a body alive with it
        self.limiter.running -= 1
        self.target.metrics.count(call)
        if self.answered:
            return
        self.answered = True
        if self.waiting is not None:
            self.stop_waiting()
        outcome, activation = call.outcome, call.activation
        if outcome is None or activation is None:
            self.answered = False
            self.refuse(Refusal(503, call.reason or OVERLOADED))
            return
        activation_id = call.id.encode()
        status = outcome.status
        if call.pickled:
            pickled = activation.pickled
            reply_buffers = call.shared.reply_buffers if call.shared is not None else None
            if outcome.shared_buffer is not None and reply_buffers is not None and outcome.pickled is not None:
                content_type = (b"content-type", b"%b; buffer=%d" % (PICKLE, reply_buffers.put(outcome.shared_buffer)))
                headers = self._headers(content_type, activation_id)
                self.respond(_HTTP_STATUS[status], (*headers, _STATUS_HEADER[status]), outcome.pickled)
                return
            if pickled is not None:
                headers = self._headers(_PICKLE_TYPE, activation_id)
                self.respond(_HTTP_STATUS[status], (*headers, _STATUS_HEADER[status]), pickled)
                return
            headers = (*self._headers(JSON, activation_id), _STATUS_HEADER[status])
        else:
            headers = self._headers(JSON, activation_id)
        bare = self.options.result or outcome.result[:1] == b"["
        # A composition's logs are the ids of what ran, and there at once.
        logs = activation.logs if call.resolved.composite else NO_LOGS
        body = outcome.result if bare else record_body(activation, logs=logs)
        self.respond(_HTTP_STATUS[status], headers, body)

    def stop_waiting(self) -> None:
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
