"""The sandboxes that read datasets, with their views and runs.

The server keeps a descriptor of each view's FUSE device. When the agent dies, the next agent takes the view over, and
functions that wait for a file go on waiting. A view that has lost several agents is closed, and its readers get an
error.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from aliquot.live.datasets.descriptor_channel import DescriptorChannel
from aliquot.live.datasets.kept_views import KeptViews
from aliquot.live.node.base import Launch
from aliquot.storage.messages import BeginRun, CloseView, EndRun, HideDataset, OpenView, RunSettled, ToAgent
from aliquot.storage.records import Dataset

SETTLE_TIMEOUT_S = 2.0  # wait of a finished run for the agent's report
LOST = "the storage agent ended while it ran"
SILENT = "the storage agent did not say what it read"
IsShown: TypeAlias = Callable[[str, str], bool]  # called with a tenant and a dataset's name
OnSettled: TypeAlias = Callable[[RunSettled | str], None]  # called with the report, or why there is none


class _ReaderSandbox:
    """A sandbox with a view of datasets."""

    __slots__ = ("datasets", "tenant")

    def __init__(self, launch: Launch, datasets: tuple[str, ...]) -> None:
        self.tenant = launch.tenant
        self.datasets = datasets  # without those that it may not see any more


class DatasetReaders:
    """Keeps the views of sandboxes open across agents. Implements the node's `ViewProvider`."""

    def __init__(
        self,
        send: Callable[[ToAgent], None],
        descriptors: DescriptorChannel,
        is_shown: IsShown,
        *,
        view_lost: Callable[[int], None],
        user_of: Callable[[str, str], str],
    ) -> None:
        self._send = send
        self._views = KeptViews(descriptors, self._open_message, CloseView, self._lost)
        self._readers: dict[int, _ReaderSandbox] = {}
        self._running: dict[str, BeginRun] = {}  # by invocation; sent again to the next agent
        self._settling: dict[str, tuple[OnSettled, asyncio.TimerHandle]] = {}  # by invocation
        self._view_lost = view_lost  # called with the sandbox
        self._user_of = user_of  # called with a tenant and its session
        self._is_shown = is_shown

    # --- views --------------------------------------------------------------------------------------------

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        datasets = tuple(name for name in launch.datasets if self._is_shown(launch.tenant, name))
        self._readers[sandbox] = _ReaderSandbox(launch, datasets)
        self._views.open(sandbox, device)
        if datasets != launch.datasets:  # its tenant lost one of them while it started
            asyncio.get_running_loop().call_soon(self._view_lost, sandbox)

    def _open_message(self, sandbox: int) -> OpenView:
        reader = self._readers[sandbox]
        return OpenView(sandbox, reader.datasets, reader.tenant)

    def _lost(self, sandbox: int) -> None:
        self._readers.pop(sandbox, None)
        self._view_lost(sandbox)

    def close(self, sandbox: int) -> None:
        """Close the view of a sandbox that has ended, if it has one."""
        self._views.close(sandbox)
        self._readers.pop(sandbox, None)

    def retire(self, before: Dataset, after: Dataset | None) -> None:
        """Retire the sandboxes that read a dataset, unless they still see the same one after the change.

        Runs may finish. A sandbox whose tenant lost the dataset cannot open it again, even if its name is reused.
        """
        same = after is not None and (after.url, after.options) == (before.url, before.options)
        readers = {sandbox: each for sandbox, each in self._readers.items() if before.name in each.datasets}
        denied = {
            sandbox: reader
            for sandbox, reader in readers.items()
            if after is None or not after.is_shown_to(reader.tenant)
        }
        for reader in denied.values():
            reader.datasets = tuple(name for name in reader.datasets if name != before.name)
        if denied:
            self._send(HideDataset(before.name, tuple(denied)))
        for sandbox in denied if same else readers:
            self._view_lost(sandbox)

    def agent_lost(self) -> None:
        """Send every view and every run to the next agent."""
        self._views.agent_lost()
        for invocation in list(self._settling):
            self._settle(invocation, LOST)
        for begun in self._running.values():
            self._send(begun)

    def stop(self) -> None:
        """Close all views."""
        self._views.stop()
        self._readers.clear()

    # --- runs ---------------------------------------------------------------------------------------------

    def begin_run(self, sandbox: int, tenant: str, function: str, invocation: str, session: str) -> None:
        user = self._user_of(tenant, session)
        begun = self._running[invocation] = BeginRun(sandbox, tenant, function, invocation, session, user)
        self._send(begun)

    def end_run(self, sandbox: int, invocation: str, then: OnSettled) -> None:
        """End a run. `then` is called once, and at once with an empty text if the run was never begun."""
        if self._running.pop(invocation, None) is None:
            then("")
            return
        timer = asyncio.get_running_loop().call_later(SETTLE_TIMEOUT_S, self._settle, invocation, SILENT)
        self._settling[invocation] = (then, timer)
        self._send(EndRun(sandbox, invocation))

    def settled(self, message: RunSettled) -> None:
        self._settle(message.invocation, message)

    def _settle(self, invocation: str, settled: RunSettled | str) -> None:
        then, timer = self._settling.pop(invocation, (None, None))
        if then is not None and timer is not None:
            timer.cancel()
            then(settled)
