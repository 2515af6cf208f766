"""Descriptors of sandboxes' views, which the server keeps so that the next storage agent can take a view over."""

import asyncio
import os
from collections.abc import Callable

import structlog

from aliquot.live.datasets.descriptor_channel import DescriptorChannel
from aliquot.storage.messages import ViewMessage
from aliquot.storage.view.wire import resends

log = structlog.get_logger("aliquot.fabric")

# Agents that may serve one view in turn. A kernel that does not resend requests fails them with the first agent.
MAX_AGENTS = 4 if resends(os.uname().release) else 1


class _KeptView:
    """A view of one sandbox."""

    __slots__ = ("agents", "device")

    def __init__(self, device: int) -> None:
        self.device = device  # descriptor of the FUSE device
        self.agents = 0  # number of agents that have served the view


class KeptViews:
    """The views of sandboxes of one kind: those of datasets, or those of volumes."""

    def __init__(
        self,
        descriptors: DescriptorChannel,
        opened: Callable[[int], ViewMessage],
        closed: Callable[[int], ViewMessage],
        lost: Callable[[int], None],
    ) -> None:
        """`opened` and `closed` return the messages about a sandbox. `lost` is called with one that lost its view."""
        self._descriptors = descriptors
        self._opened = opened
        self._closed = closed
        self._lost = lost
        self._views: dict[int, _KeptView] = {}

    def open(self, sandbox: int, device: int) -> None:
        """Keep a view and send it to the agent."""
        self._views[sandbox] = _KeptView(device)
        self._send(sandbox)

    def _send(self, sandbox: int) -> None:
        view = self._views[sandbox]
        view.agents += 1
        try:
            device = os.dup(view.device)
        except OSError as error:  # the process has no descriptors left; only this view is lost
            log.error("a view cannot be sent to the agent", sandbox=sandbox, error=error.strerror)  # noqa: TRY400 - in text
            asyncio.get_running_loop().call_soon(self._lost, sandbox)
            return
        self._descriptors.send(self._opened(sandbox), device)

    def close(self, sandbox: int) -> bool:
        """Close the view of a sandbox that has ended. Return False if it has none."""
        if found := self._close_device(sandbox):
            self._descriptors.send(self._closed(sandbox))
        return found

    def _close_device(self, sandbox: int) -> bool:
        view = self._views.pop(sandbox, None)
        if view is not None:
            os.close(view.device)
        return view is not None

    def agent_lost(self) -> None:
        """Send every view to the next agent, except those that have lost too many."""
        for sandbox, view in list(self._views.items()):
            if view.agents < MAX_AGENTS:
                self._send(sandbox)
            else:
                self._close_device(sandbox)
                self._lost(sandbox)

    def stop(self) -> None:
        """Close all views."""
        for sandbox in list(self._views):
            self._close_device(sandbox)
