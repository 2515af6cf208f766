"""Devices and nodes that come, go, and return.

A node that is suspected or drained gets no new work. What a lost node did not run yet goes elsewhere. Calls that no
other device can run wait for a while for another node, where policies do not see them, and then fail.
"""

from collections.abc import Callable

from aliquot.core.calls import Calls
from aliquot.core.clock import after
from aliquot.core.errors import EventError
from aliquot.core.events import (
    DatasetHeld,
    DeviceAdded,
    DeviceLost,
    Event,
    HostMemorySet,
    NodeBack,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeSuspected,
)
from aliquot.core.interfaces import Expiry, ExpiryAction
from aliquot.core.nodes import Node, NodeWait
from aliquot.core.pool import Pool
from aliquot.core.prefetching.by_node import NodePrefetchers
from aliquot.core.records import Sandbox
from aliquot.core.registry import Registry
from aliquot.core.timers import Timers
from aliquot.core.waiting import admit, hold_back


class Membership:
    """Handles the events about devices and nodes."""

    def __init__(
        self,
        registry: Registry,
        pool: Pool,
        calls: Calls,
        timers: Timers,
        prefetcher: NodePrefetchers,
        node_wait_s: float,
    ) -> None:
        self._registry = registry
        self._pool = pool
        self._calls = calls
        self._timers = timers
        self._prefetcher = prefetcher
        self._node_wait_s = node_wait_s
        self.now: float = 0

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        return {
            DeviceAdded: self._device_added,
            DeviceLost: self._device_lost,
            NodeJoined: self._node_joined,
            NodeSuspected: self._node_suspected,
            NodeBack: self._node_back,
            NodeDraining: self._node_draining,
            NodeLost: self._node_lost,
            DatasetHeld: self._dataset_held,
            HostMemorySet: self._host_memory_set,
        }

    # --- devices ----------------------------------------------------------------------------------------

    def _device_added(self, event: DeviceAdded) -> None:
        self._registry.add_devices([event.device])
        self._follow_fits(wait=False)

    def _device_lost(self, event: DeviceLost) -> None:
        device = self._registry.device(event.device)
        for sandbox in list(device.sandboxes.values()):
            self._calls.lose(sandbox, f"device {event.device} was lost", now=self.now)
        for move in list(device.moves.values()):
            move.end()
        self._registry.remove_devices([device])
        self._follow_fits(wait=False)

    def _host_memory_set(self, event: HostMemorySet) -> None:
        if any(sandbox.device.spec.node == event.node for sandbox in self._pool.sandboxes.values()):
            raise EventError("the host's memory must be known before the first sandbox starts")
        self._registry.bound_host_memory(event.node, event.memory_bytes)
        self._follow_fits(wait=False)

    def _dataset_held(self, event: DatasetHeld) -> None:
        if event.bytes < 0:
            raise EventError(f"node {event.node} cannot hold {event.bytes} bytes of {event.dataset}")
        self._registry.index.datasets.hold(self._registry.node(event.node), event.dataset, event.bytes)

    # --- nodes ------------------------------------------------------------------------------------------

    def _node_joined(self, event: NodeJoined) -> None:
        self._registry.add_node(event.spec, event.devices)
        self._follow_fits(wait=False)

    def _node_suspected(self, event: NodeSuspected) -> None:
        node = self._registry.node(event.node)
        node.suspected = True
        self._update(node)

    def _node_back(self, event: NodeBack) -> None:
        node = self._registry.node(event.node)
        node.suspected = node.draining = False
        node.expiry = None
        self._update(node)

    def _node_draining(self, event: NodeDraining) -> None:
        node = self._registry.node(event.node)
        node.draining = True
        node.expiry = None if event.until is None else Expiry(event.until, ExpiryAction.STOP)
        self._timers.arm(node)
        self._update(node)
        for sandbox in _sandboxes(node):
            sandbox.retired = f"node {event.node} is being drained"
            if sandbox.invocation is None:
                self._pool.stop(sandbox, sandbox.retired)

    def _node_lost(self, event: NodeLost) -> None:
        node = self._registry.node(event.node)
        because = f": {event.reason}" if event.reason else ""
        because += "; it runs again only if its action is annotated rerun"
        for sandbox in _sandboxes(node):
            self._calls.lose_with_node(sandbox, f"node {event.node} was lost while it ran{because}", now=self.now)
        node.expiry = None
        self._registry.remove_node(node)
        self._prefetcher.node_lost(event.node)
        self._follow_fits(wait=True)

    def _update(self, node: Node) -> None:
        self._registry.update_node(node)
        self._follow_fits(wait=True)

    # --- times ------------------------------------------------------------------------------------------

    def expire(self, subject: Node | NodeWait) -> None:
        """End the calls on a node whose time for draining is over, or calls that have waited for a node too long."""
        subject.expiry = None
        if isinstance(subject, Node):
            for sandbox in _sandboxes(subject):
                self._calls.stop(sandbox, f"node {subject.spec.name} was drained, and its time is over", now=self.now)
            return
        flow = subject.flow
        flow.node_wait = None
        self._calls.fail_queued(flow, f"no node came on which it fits: {flow.misfit}", now=self.now)

    def _follow_fits(self, *, wait: bool) -> None:
        """Queue the calls of flows that fit again. Those of flows that fit nowhere wait for a node, or fail."""
        refitted = self._registry.refitted
        for flow in list(refitted.values()):
            if flow.misfit is None:
                flow.stop_waiting()
                admit(flow)
            elif wait:
                flow.node_wait = NodeWait(flow, Expiry(after(self.now, self._node_wait_s), ExpiryAction.STOP))
                self._timers.arm(flow.node_wait)
                hold_back(flow)
            else:
                self._calls.fail_queued(flow, flow.misfit, now=self.now)
        refitted.clear()


def _sandboxes(node: Node) -> list[Sandbox]:
    """Return the sandboxes on the node, each once."""
    return list({number: s for device in node.devices.values() for number, s in device.sandboxes.items()}.values())
