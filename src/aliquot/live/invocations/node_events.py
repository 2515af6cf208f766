"""Report nodes that come, return and are lost to the scheduler."""

import asyncio
from collections.abc import Callable

from aliquot.core.events import Event, NodeBack, NodeDraining, NodeJoined, NodeLost, NodeSuspected
from aliquot.core.model import DeviceSpec, NodeSpec
from aliquot.live.catalogue.needs import reruns_of
from aliquot.live.invocations.sandbox_assignments import SandboxAssignments


class NodeEvents:
    """Posts the events of nodes. It implements `MembershipListener`."""

    def __init__(
        self, assignments: SandboxAssignments, post: Callable[[Event], None], now: Callable[[], float]
    ) -> None:
        """`now` returns the time on the platform's clock."""
        self._assignments = assignments
        self._post = post
        self._now = now

    def node_joined(self, spec: NodeSpec, devices: tuple[DeviceSpec, ...]) -> None:
        self._post(NodeJoined(spec, devices))

    def node_suspected(self, node: str) -> None:
        self._post(NodeSuspected(node))

    def node_back(self, node: str) -> None:
        self._post(NodeBack(node))

    def node_draining(self, node: str, deadline_s: float | None) -> None:
        self._post(NodeDraining(node, None if deadline_s is None else self._now() + deadline_s))

    def node_lost(self, node: str, reason: str, sandboxes: tuple[int, ...]) -> None:
        """Report a loss. The calls that end with it find their output by the assignments, which are closed after."""
        for sandbox in sandboxes:
            assignment = self._assignments.get(sandbox)
            for call in () if assignment is None or not assignment.runs else assignment.calls:
                # `attempts` counts the first run, too.
                call.run.may_retry = call.run.attempts <= (reruns_of(call.action) or 0)
        self._post(NodeLost(node, reason))
        asyncio.get_running_loop().call_soon(self._close, sandboxes)

    def _close(self, sandboxes: tuple[int, ...]) -> None:
        for sandbox in sandboxes:
            self._assignments.close(sandbox)
