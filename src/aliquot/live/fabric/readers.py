"""The sandboxes that read datasets: their views, their runs, and what becomes of both when the agent dies."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from aliquot.live.fabric.handover import Handover
from aliquot.live.node.base import Launch
from aliquot.storage.messages import BeginRun, CloseView, EndRun, OpenView, RunSettled, ToAgent
from aliquot.storage.records import Dataset

SETTLE_S = 2.0  # how long a result may wait for an agent that lives and does not answer
LOST = "the storage agent ended while it ran"
SILENT = "the storage agent did not say what it read"
Settled: TypeAlias = Callable[[RunSettled | str], None]  # or why there is nothing to be said


class Readers:
    """Implements the node's `Views`."""

    def __init__(self, send: Callable[[ToAgent], None], handover: Handover) -> None:
        self._send = send
        self._handover = handover
        self._seen: dict[int, Launch] = {}  # by sandbox, while it has a view
        self._running: dict[str, None] = {}  # invocations that the agent was told of
        self._settling: dict[str, tuple[Settled, asyncio.TimerHandle]] = {}  # by invocation
        self.on_blind: Callable[[int], None] = lambda _: None  # a sandbox's view is gone; set by the service

    # --- views --------------------------------------------------------------------------------------------

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        self._seen[sandbox] = launch
        self._handover.send(OpenView(sandbox, launch.datasets), device)

    def close(self, sandbox: int) -> None:
        """The sandbox is gone; of one that has no view, nothing."""
        if self._seen.pop(sandbox, None) is not None:
            self._handover.send(CloseView(sandbox))

    def retire(self, before: Dataset, after: Dataset | None) -> None:
        """Its readers do not go on, unless they would see the same."""
        same = after is not None and (after.url, after.options) == (before.url, before.options)
        for sandbox, launch in list(self._seen.items()):
            stays = same and after is not None and after.is_shown_to(launch.tenant)
            if before.name in launch.datasets and not stays:
                self.on_blind(sandbox)

    def lost(self) -> None:
        """The agent is gone, and with it the other end of every view."""
        seen, self._seen = self._seen, {}
        for sandbox in seen:
            self.on_blind(sandbox)
        self._running = {}
        for invocation in list(self._settling):
            self._settle(invocation, LOST)

    # --- runs ---------------------------------------------------------------------------------------------

    def begin_run(self, sandbox: int, tenant: str, function: str, invocation: str, session: str) -> None:
        self._running[invocation] = None
        self._send(BeginRun(sandbox, tenant, function, invocation, session))

    def end_run(self, sandbox: int, invocation: str, then: Settled) -> None:
        """`then` comes once; at once when the agent that knew is gone."""
        if invocation not in self._running:
            then(LOST)
            return
        del self._running[invocation]
        timer = asyncio.get_running_loop().call_later(SETTLE_S, self._settle, invocation, SILENT)
        self._settling[invocation] = (then, timer)
        self._send(EndRun(sandbox, invocation))

    def settled(self, message: RunSettled) -> None:
        self._settle(message.invocation, message)

    def _settle(self, invocation: str, settled: RunSettled | str) -> None:
        then, timer = self._settling.pop(invocation, (None, None))
        if then is not None and timer is not None:
            timer.cancel()
            then(settled)
