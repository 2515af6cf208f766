"""A web action's call: made, handed to the platform, and awaited as long as callers usually wait."""

import asyncio

from aliquot.live.call import Call
from aliquot.live.gateway.ids import Ids
from aliquot.live.gateway.refusal import OVERLOADED, Refusal, too_large
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web.target import WebTarget
from aliquot.live.platform import Platform


class Runner:
    def __init__(self, platform: Platform, settings: GatewaySettings) -> None:
        self._platform = platform
        self._settings = settings
        self._ids = Ids()

    async def run(self, target: WebTarget, payload: bytes | memoryview, transaction: str) -> Call:
        """The call, ended, or still without an `outcome` when it takes too long. Raises a `Refusal` and `Overloaded`.

        The run goes on when whoever asked does not wait for it.
        """
        target.gate.check()
        if len(payload) > self._settings.payload_bytes:  # base64 is longer than what came
            raise too_large("Request", len(payload), self._settings.payload_bytes)
        ended = asyncio.get_running_loop().create_future()

        def done(call: Call) -> None:
            call.done = None
            target.gate.running -= 1
            target.target.tally.count(call)
            if not ended.done():
                ended.set_result(None)

        call = Call(self._ids(), target.owner, target.target.reached, payload, transaction=transaction, done=done)
        target.gate.running += 1
        try:
            self._platform.submit(call)
        except Exception:
            target.gate.running -= 1
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
