"""Run a web action for a request, with a limit on the memory that callers without a key may fill."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.budgets import Budget, BudgetError
from aliquot.core.units import MIB
from aliquot.live.gateway.http.refusal import OVERLOADED, Refusal, too_large
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web.target import WebTarget
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.trace_context import TraceContext
from aliquot.live.store.ids import Ids

SMALL_BYTES = MIB  # smaller bodies are always admitted, so that large ones cannot keep them out
_MAX_LARGE_BODIES = 16  # number of bodies of the largest size


class AnonymousBodyLimit:
    """Limits the memory for bodies of callers without a key. Each body stays in memory until its call ends."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes  # limit for one body
        self._budget = Budget("bodies of callers without a key", "bytes", _MAX_LARGE_BODIES * max_bytes)

    @contextmanager
    def reserve(self, payer: str, headers: dict[bytes, bytes]) -> Iterator[None]:
        """Reserve memory for a request with these headers. Raises a 503 if there is not enough."""
        length = headers.get(b"content-length", b"0")
        size = int(length) if length.isdigit() and b"transfer-encoding" not in headers else self._max_bytes
        size = min(size, self._max_bytes)  # a larger body is refused anyway
        if size <= SMALL_BYTES:
            yield
            return
        try:
            reserved = self._budget.reserve(payer, size)
        except BudgetError as error:
            raise Refusal(503, OVERLOADED) from error
        try:
            yield
        finally:
            del reserved


class WebActionRunner:
    """Submits calls of web actions to the platform and waits for them."""

    def __init__(self, platform: Platform, settings: GatewaySettings) -> None:
        self._platform = platform
        self._settings = settings
        self._ids = Ids()

    async def run(
        self, target: WebTarget, payload: bytes | memoryview, transaction: str, trace: TraceContext | None
    ) -> Call:
        """Run the action and wait for it, at most as long as blocking callers do by default.

        Returns the call. It has no `outcome` if it still runs. Raises a `Refusal`, `RateLimitError` and
        `OverloadedError`. The run continues when its caller disconnects.
        """
        target.limiter.check()
        if len(payload) > self._settings.payload_bytes:  # base64 is longer than the body
            raise too_large("Request", len(payload), self._settings.payload_bytes)
        ended = asyncio.get_running_loop().create_future()

        def done(call: Call) -> None:
            call.done = None
            target.limiter.end()
            target.target.metrics.count(call)
            if not ended.done():
                ended.set_result(None)

        call = Call(
            self._ids(), target.owner, target.target.resolved, payload, transaction=transaction, done=done, trace=trace
        )
        target.limiter.begin(call)
        try:
            self._platform.submit(call)
        except Exception:
            target.limiter.end()
            raise
        try:
            async with asyncio.timeout(self._settings.blocking_ms / 1000):
                await ended
        except TimeoutError:
            await self._platform.detach(call)
            return call
        if call.outcome is None:
            raise Refusal(503, call.reason or OVERLOADED)
        return call
