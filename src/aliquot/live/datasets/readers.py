"""The sandboxes that read datasets: their views, their runs, and what becomes of both when the agent dies.

A view's end of FUSE is kept here, too: the next agent takes it over, and whoever waits for a file goes on waiting. Only
where agents die again and again is it let go, so that whoever waits gets an error instead.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TypeAlias

import structlog

from aliquot.live.datasets.handover import Handover
from aliquot.live.node.base import Launch
from aliquot.storage.messages import BeginRun, CloseView, EndRun, HideDataset, OpenView, RunSettled, ToAgent
from aliquot.storage.records import Dataset
from aliquot.storage.view.wire import resends

log = structlog.get_logger("aliquot.fabric")

# That a view may see. Where the kernel does not ask again, whoever waits gets an error with the first.
MOST_AGENTS = 4 if resends(os.uname().release) else 1
SETTLE_S = 2.0  # how long a result may wait for an agent that lives and does not answer
LOST = "the storage agent ended while it ran"
SILENT = "the storage agent did not say what it read"
Shown: TypeAlias = Callable[[str, str], bool]  # whether a tenant sees the dataset of that name
Settled: TypeAlias = Callable[[RunSettled | str], None]  # or why there is nothing to be said


class _Reader:
    """A sandbox with a view."""

    __slots__ = ("agents", "datasets", "device", "tenant")

    def __init__(self, launch: Launch, datasets: tuple[str, ...], device: int) -> None:
        self.tenant = launch.tenant
        self.datasets = datasets  # without those that were taken from it
        self.device = device
        self.agents = 0  # that were given it


class Readers:
    """Implements the node's `Views`."""

    def __init__(
        self,
        send: Callable[[ToAgent], None],
        handover: Handover,
        shown: Shown,
        *,
        view_lost: Callable[[int], None],
        user_of: Callable[[str, str], str],
    ) -> None:
        self._send = send
        self._handover = handover
        self._readers: dict[int, _Reader] = {}
        self._running: dict[str, BeginRun] = {}  # by invocation: what the agent was told of
        self._settling: dict[str, tuple[Settled, asyncio.TimerHandle]] = {}  # by invocation
        self._view_lost = view_lost  # called with the sandbox
        self._user_of = user_of  # called with a tenant and its session
        self._shown = shown

    # --- views --------------------------------------------------------------------------------------------

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        datasets = tuple(name for name in launch.datasets if self._shown(launch.tenant, name))
        self._readers[sandbox] = _Reader(launch, datasets, device)
        self._hand_over(sandbox)
        if datasets != launch.datasets:  # one was taken from its tenant while it started
            asyncio.get_running_loop().call_soon(self._view_lost, sandbox)

    def _hand_over(self, sandbox: int) -> None:
        reader = self._readers[sandbox]
        reader.agents += 1
        try:
            device = os.dup(reader.device)
        except OSError as error:  # no descriptors are left: this one sees nothing any more, the others may
            log.error("a view cannot be handed over", sandbox=sandbox, error=error.strerror)  # noqa: TRY400 - said
            asyncio.get_running_loop().call_soon(self._view_lost, sandbox)
            return
        self._handover.send(OpenView(sandbox, reader.datasets), device)

    def close(self, sandbox: int) -> None:
        """The sandbox is gone; of one that has no view, nothing."""
        if self._let_go(sandbox):
            self._handover.send(CloseView(sandbox))

    def _let_go(self, sandbox: int) -> bool:
        reader = self._readers.pop(sandbox, None)
        if reader is not None:
            os.close(reader.device)
        return reader is not None

    def retire(self, before: Dataset, after: Dataset | None) -> None:
        """Its readers do not go on, unless they would see the same.

        What they run may; but where it was taken from them the name is theirs no more, whatever it comes to stand for.
        """
        same = after is not None and (after.url, after.options) == (before.url, before.options)
        readers = {sandbox: each for sandbox, each in self._readers.items() if before.name in each.datasets}
        robbed = {
            sandbox: reader
            for sandbox, reader in readers.items()
            if after is None or not after.is_shown_to(reader.tenant)
        }
        for reader in robbed.values():
            reader.datasets = tuple(name for name in reader.datasets if name != before.name)
        if robbed:
            self._send(HideDataset(before.name, tuple(robbed)))
        for sandbox in robbed if same else readers:
            self._view_lost(sandbox)

    def lost(self) -> None:
        """The agent is gone: the next one is told of every view and every run."""
        for sandbox, reader in list(self._readers.items()):
            if reader.agents < MOST_AGENTS:
                self._hand_over(sandbox)
            else:
                self._let_go(sandbox)
                self._view_lost(sandbox)
        for invocation in list(self._settling):
            self._settle(invocation, LOST)
        for begun in self._running.values():
            self._send(begun)

    def stop(self) -> None:
        for sandbox in list(self._readers):
            self._let_go(sandbox)

    # --- runs ---------------------------------------------------------------------------------------------

    def begin_run(self, sandbox: int, tenant: str, function: str, invocation: str, session: str) -> None:
        user = self._user_of(tenant, session)
        begun = self._running[invocation] = BeginRun(sandbox, tenant, function, invocation, session, user)
        self._send(begun)

    def end_run(self, sandbox: int, invocation: str, then: Settled) -> None:
        """`then` comes once; at once, and with an empty text, of a run that was never begun."""
        if self._running.pop(invocation, None) is None:
            then("")
            return
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
