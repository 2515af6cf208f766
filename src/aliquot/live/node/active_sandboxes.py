"""The active sandboxes of a node: one timer for all enforces time limits, reads long output and freezes idle ones."""

import asyncio
import time

from aliquot.live.node.local_sandbox import LocalSandbox

TICK_S = 0.02


class ActiveSandboxes:
    """Calls `tick` of every sandbox that is busy, or idle and not frozen yet. The timer stops when there is none.

    A timer per run would cost a good part of a warm call, which mostly ends before the first tick. Freezing a sandbox
    at the end of each run would cost even more. One that is called again within a tick or two is never frozen.
    """

    __slots__ = ("_loop", "_sandboxes", "_ticked_s", "_ticking")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sandboxes: dict[LocalSandbox, None] = {}
        self._ticking = False
        self._ticked_s = 0.0

    def add(self, sandbox: LocalSandbox) -> None:
        self._sandboxes[sandbox] = None
        if not self._ticking:
            self._ticking = True
            self._ticked_s = time.perf_counter()
            self._loop.call_later(TICK_S, self._tick)

    def remove(self, sandbox: LocalSandbox) -> None:
        """Remove a sandbox that has ended."""
        self._sandboxes.pop(sandbox, None)

    def _tick(self) -> None:
        if not self._sandboxes:
            self._ticking = False
            return
        before_s, self._ticked_s = self._ticked_s, time.perf_counter()
        for sandbox in list(self._sandboxes):
            if not sandbox.tick(self._ticked_s, before_s):
                self._sandboxes.pop(sandbox, None)
        self._loop.call_later(TICK_S, self._tick)
