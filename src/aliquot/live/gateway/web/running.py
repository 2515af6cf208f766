"""A web action's call: made, handed to the platform, and awaited as long as callers usually wait."""

import asyncio

from aliquot.live.gateway.http.refusal import OVERLOADED, Refusal, too_large
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web.target import WebTarget
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.platform import Platform
from aliquot.live.store.ids import Ids


class WebActionRunner:
    def __init__(self, platform: Platform, settings: GatewaySettings) -> None:
        self._platform = platform
        self._settings = settings
        self._ids = Ids()

    async def run(self, target: WebTarget, payload: bytes | memoryview, transaction: str) -> Call:
        """Run the action and wait for it as long as callers usually wait.

        Returns the call. It has no `outcome` if it still runs. Raises a `Refusal`, `RateLimitError` and
        `OverloadedError`. The run goes on when its caller disconnects.
        """
        target.limiter.check()
        if len(payload) > self._settings.payload_bytes:  # base64 is longer than what came
            raise too_large("Request", len(payload), self._settings.payload_bytes)
        ended = asyncio.get_running_loop().create_future()

        def done(call: Call) -> None:
            call.done = None
            target.limiter.running -= 1
            target.target.metrics.count(call)
            if not ended.done():
                ended.set_result(None)

        call = Call(self._ids(), target.owner, target.target.resolved, payload, transaction=transaction, done=done)
        target.limiter.running += 1
        try:
            self._platform.submit(call)
        except Exception:
            target.limiter.running -= 1
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
