"""The busy sandboxes of a node: one timer for all looks at their time limits and at the output of long runs."""

import asyncio
import time

from aliquot.live.node.local_sandbox import LocalSandbox

TICK_S = 0.02


class BusySandboxes:
    """Calls `tick` of every busy sandbox regularly. The timer stops when no sandbox is busy.

    A timer per run would cost a good part of a warm call, which mostly ends before the first tick.
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
        """Remove a sandbox, if it is busy."""
        self._sandboxes.pop(sandbox, None)

    def _tick(self) -> None:
        if not self._sandboxes:
            self._ticking = False
            return
        before_s, self._ticked_s = self._ticked_s, time.perf_counter()
        for sandbox in list(self._sandboxes):
            sandbox.tick(self._ticked_s, before_s)
        self._loop.call_later(TICK_S, self._tick)
