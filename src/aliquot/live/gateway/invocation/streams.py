"""An invocation whose caller wants to see it go on: accepted as one that nobody waits for, and then followed."""

from collections.abc import Callable

from aliquot.live.gateway.http.events import EventStream
from aliquot.live.gateway.http.responses import Headers
from aliquot.live.gateway.invocation.exchange import Exchange, Respond
from aliquot.live.invocations.call import Call, Follower


class StreamingExchange(Exchange):
    """Its answer is `stream(headers)` once the call is durable; before that it may be refused like any other."""

    __slots__ = ("events", "stream")

    def __init__(
        self,
        path: bytes,
        query: bytes,
        authorization: bytes | None,
        content_type: bytes | None,
        transaction: str,
        body: bytes | memoryview,
        respond: Respond,
        stream: Callable[[Headers], None],
        events: EventStream,
    ) -> None:
        super().__init__(path, query, authorization, content_type, transaction, body, respond)
        self.stream = stream
        self.events = events

    @property
    def followers(self) -> tuple[Follower, ...]:  # type: ignore[override] # theirs is the same for all
        return (self.events,) if self.options.blocking else ()

    def acknowledge(self) -> None:
        if not self.options.blocking:
            super().acknowledge()
        elif not self.answered:
            self.answered = True
            self.events.bare = self.options.result
            self.events.accepted(self.call.id)
            request_id = (b"x-request-id", self.transaction.encode())
            self.stream((request_id, (b"x-openwhisk-activation-id", self.call.id.encode())))

    def done(self, call: Call) -> None:
        super().done(call)
        if self.options.blocking:
            self.events.ended(call)
