"""All nodes of a cluster as one `Node`: the head's own devices, and one remote node for each agent.

A command goes to the node of its sandbox. The scheduler learns of nodes that come, are suspected, return and are lost.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from aliquot.cluster.connection import FrameConnection, MessageError
from aliquot.cluster.delivery import DeliveryError
from aliquot.cluster.head.registry import NodeRecord
from aliquot.cluster.head.remote_node import RemoteNode
from aliquot.cluster.head.reports import ReportHandlers
from aliquot.cluster.liveness import Judgement, LivenessLimits, NodeLiveness
from aliquot.cluster.messages import (
    Hello,
    Load,
    Pong,
    Ready,
    Refused,
    Report,
    SetSliceCommand,
    SetWeight,
    Unload,
    Usage,
)
from aliquot.cluster.names import local_place
from aliquot.core.model import DeviceSpec, NodeSpec
from aliquot.core.places import NODE_SEPARATOR, SEPARATOR, Place, node_of
from aliquot.core.validate import device_problems
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.base import Launch, Node, NodeListener, Outcome, RunRequest, SandboxUsage
from aliquot.live.node.cluster import MembershipListener
from aliquot.live.node.environments.build_queue import BuildStatus
from aliquot.live.node.local import LocalNode

log = structlog.get_logger("aliquot.cluster")

MAX_LOST = 100_000  # agents that were lost and are remembered


class AdmissionError(Exception):
    """An agent cannot be taken. `again` says whether another process of it may try."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.again = again


class Fleet(Node):
    """The head's node and those of agents. Everything runs on the event loop."""

    def __init__(self, local: LocalNode, limits: LivenessLimits, epoch: int) -> None:
        self._local = local
        self._limits = limits
        self._epoch = epoch
        self.nodes: dict[str, RemoteNode] = {}
        self.draining: dict[str, float | None] = {}  # nodes that get no work, with the time at which their calls end
        self._of: dict[int, RemoteNode] = {}
        self._weights: dict[str, float] = {}
        self._lost_instances: dict[str, None] = {}
        self._membership: MembershipListener
        self._reports: ReportHandlers
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._expected: dict[str, asyncio.TimerHandle] = {}  # nodes of an earlier head that have not come yet
        self._tell_ready: Callable[[RemoteNode], None] = lambda _: None

    # --- Node: the whole --------------------------------------------------------------------------------

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        return (
            *self._local.devices,
            *(device for node in self.nodes.values() if node.ready for device in node.devices),
        )

    async def start(self, listener: NodeListener) -> None:
        self._loop = asyncio.get_running_loop()
        self._reports = ReportHandlers(listener, self._local.buffers, self._of, self._leaving, self._all_ended)
        await self._local.start(listener)
        self._timer = self._loop.call_later(self._limits.ping_s, self._tick)

    async def stop(self) -> None:
        for timer in (self._timer, *self._expected.values()):
            if timer is not None:
                timer.cancel()
        for node in self.nodes.values():
            node.say_last(Refused("the head has stopped", again=True))
            node.detach("the head stops")
        await self._local.stop()

    def set_weight(self, tenant: str, weight: float) -> None:
        self._weights[tenant] = weight
        self._local.set_weight(tenant, weight)
        for node in self.nodes.values():
            if node.ready:
                node.send(SetWeight(tenant, weight))

    def usage(self) -> list[SandboxUsage]:
        return [*self._local.usage(), *(one for node in self.nodes.values() for one in node.usage)]

    def device_usage(self) -> list[DeviceUsage]:
        return [*self._local.device_usage(), *(one for node in self.nodes.values() for one in node.device_usage)]

    # --- Node: environments are built on the head, and on other nodes by the first start there -------------

    def prepare(self, launch: Launch) -> None:
        self._local.prepare(launch)

    def has_environment(self, requirements: tuple[str, ...]) -> bool:
        return self._local.has_environment(requirements)

    def build_environment(
        self, requirements: tuple[str, ...], tenant: str, then: Callable[[Outcome | None], None]
    ) -> None:
        self._local.build_environment(requirements, tenant, then)

    def build_status(self) -> list[BuildStatus]:
        return self._local.build_status()

    def executor_figures(self) -> dict[str, float]:
        """Return the figures of the head's own node."""
        return self._local.executor_figures()

    # --- Node: by sandbox -------------------------------------------------------------------------------

    def start_sandbox(self, sandbox: int, launch: Launch) -> None:
        name = node_of(launch.place)
        if not name:
            self._local.start_sandbox(sandbox, launch)
        elif (node := self.nodes.get(name)) is not None and node.ready:
            self._of[sandbox] = node
            node.start_sandbox(sandbox, launch)
        # Otherwise the node has been lost, and the scheduler is about to learn it. A new agent is not ready yet.

    def run(self, sandbox: int, request: RunRequest) -> None:
        if (node := self._of.get(sandbox)) is None:
            self._local.run(sandbox, request)
        elif not node.run(sandbox, request):
            self._loop.call_soon(self._reports.too_large, node, sandbox)

    def run_next(self, sandbox: int, request: RunRequest) -> bool:
        return sandbox not in self._of and self._local.run_next(sandbox, request)

    def take_back(self, sandbox: int) -> None:
        if sandbox not in self._of:
            self._local.take_back(sandbox)

    def output(self, sandbox: int) -> tuple[tuple[str, ...], ...]:
        if (node := self._of.get(sandbox)) is None:
            return self._local.output(sandbox)
        remote = node.sandboxes.get(sandbox)
        return () if remote is None else (tuple(remote.lines),)

    def stop_sandbox(self, sandbox: int) -> None:
        if (node := self._of.pop(sandbox, None)) is None:
            self._local.stop_sandbox(sandbox)
            return
        node.stop_sandbox(sandbox)
        self._all_ended(node)

    def enforces(self, place: Place) -> bool:
        if not (name := node_of(place)):
            return self._local.enforces(place)
        node = self.nodes.get(name)
        return node is not None and all(device in node.enforced for device in local_place(place))

    def set_slice(self, sandbox: int, share: float, ceiling: float) -> None:
        if (node := self._of.get(sandbox)) is not None:
            node.send(SetSliceCommand(sandbox, share, ceiling))
        else:
            self._local.set_slice(sandbox, share, ceiling)

    def unload(self, sandbox: int) -> None:
        if (node := self._of.get(sandbox)) is not None:
            node.send(Unload(sandbox))
        else:
            self._local.unload(sandbox)

    def load(self, sandbox: int) -> None:
        if (node := self._of.get(sandbox)) is not None:
            node.send(Load(sandbox))
        else:
            self._local.load(sandbox)

    def move(self, sandbox: int, place: Place, then: Callable[[str | None], None]) -> None:
        if sandbox in self._of or node_of(place):
            self._loop.call_soon(then, "sandboxes of other nodes stay where they are")
        else:
            self._local.move(sandbox, place, then)

    def pid_of(self, sandbox: int) -> int | None:
        return None if sandbox in self._of else self._local.pid_of(sandbox)

    def tell(self, listener: MembershipListener) -> None:
        """Report nodes to this listener. This comes before the first node."""
        self._membership = listener

    def on_ready(self, then: Callable[[RemoteNode], None]) -> None:
        """Call `then` with each node that has joined."""
        self._tell_ready = then

    def expect(self, records: Iterable[NodeRecord]) -> None:
        """Let calls wait for nodes that an earlier head had, until these are taken for lost."""
        for record in records:
            if record.devices:
                self._membership.node_joined(NodeSpec(record.name, record.host_memory_bytes), record.devices)
                self._membership.node_suspected(record.name)
                late = self._loop.call_later(
                    self._limits.lose_s, self.give_up, record.name, "it did not come back to the new head"
                )
                self._expected[record.name] = late

    def give_up(self, name: str, reason: str) -> None:
        """Expect a node no longer."""
        if (timer := self._expected.pop(name, None)) is not None:
            timer.cancel()
            self._membership.node_lost(name, reason, ())

    # --- nodes that come and go -------------------------------------------------------------------------

    def admit(self, hello: Hello, connection: FrameConnection, welcome: Callable[[int], None]) -> None:
        """Take an agent that is known. `welcome` is called with the number of its reports so far, before any command.

        Raises `AdmissionError`.
        """
        node = self.nodes.get(hello.node)
        if node is None or node.instance != hello.instance:
            if hello.received or hello.instance in self._lost_instances:
                raise AdmissionError("this node was taken for lost, and its calls have ended", again=True)
            _check_devices(hello)
            if node is not None:
                self.lose(node, "its agent was started again")
            liveness = NodeLiveness(self._limits, time.monotonic())
            node = self.nodes[hello.node] = RemoteNode(
                *(hello, self._epoch, liveness, self._reported, self._alive, self._closed)
            )
        welcome(node.delivery.received)
        try:
            node.attach(connection, hello.received)
        except DeliveryError as error:
            self.lose(node, str(error))
            raise AdmissionError(str(error), again=True) from error
        self._alive(node)

    def lose(self, node: RemoteNode, reason: str) -> None:
        """End a node: the calls that ran there have ended, and the others go elsewhere."""
        log.warning("a node was lost", node=node.name, reason=reason)
        del self.nodes[node.name]
        self._lost_instances[node.instance] = None
        while len(self._lost_instances) > MAX_LOST:
            del self._lost_instances[next(iter(self._lost_instances))]
        node.detach(reason)
        if node.ready:
            self._membership.node_lost(node.name, reason, tuple(node.sandboxes))
        # The output of its runs is read in the scheduler's next step.
        self._loop.call_soon(self._forget, tuple(node.sandboxes))

    def drain(self, name: str, deadline_s: float | None) -> None:
        """Give the node no more work. After the deadline the calls that still run there end."""
        self.draining[name] = None if deadline_s is None else time.monotonic() + deadline_s
        if (node := self.nodes.get(name)) is not None and node.ready:
            self._membership.node_draining(name, deadline_s)

    def undrain(self, name: str) -> None:
        """Give the node work again."""
        self.draining.pop(name, None)
        node = self.nodes.get(name)
        if node is not None and node.ready and not node.liveness.suspected:
            self._membership.node_back(name)

    def _forget(self, sandboxes: tuple[int, ...]) -> None:
        for sandbox in sandboxes:
            self._of.pop(sandbox, None)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._limits.ping_s, self._tick)
        now_s = time.monotonic()
        for node in list(self.nodes.values()):
            node.ping()
            judgement = node.liveness.judge(now_s)
            if judgement is Judgement.LOST:
                self.lose(node, f"nothing was heard of it for {node.liveness.silent_s(now_s):.1f} s")
            elif judgement is Judgement.SUSPECTED:
                self._suspect(node, f"nothing was heard of it for {node.liveness.silent_s(now_s):.1f} s")
            elif node.delivery.is_over:
                self.lose(node, "it takes no commands")

    def _alive(self, node: RemoteNode) -> None:
        if node.liveness.heard(time.monotonic()) is Judgement.BACK and node.ready:
            log.info("a node is back", node=node.name)
            self._membership.node_back(node.name)
            self._drain_again(node)

    def _drain_again(self, node: RemoteNode) -> None:
        if node.name in self.draining:
            until_s = self.draining[node.name]
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            self._membership.node_draining(node.name, left_s)

    def _closed(self, node: RemoteNode, why: str) -> None:
        if node.leaving and not node.sandboxes:
            self.lose(node, "it was stopped")
        elif node.liveness.disconnected() is Judgement.SUSPECTED:
            self._suspect(node, why)

    def _suspect(self, node: RemoteNode, why: str) -> None:
        log.warning("a node is suspected to be lost", node=node.name, reason=why)
        if node.ready:
            self._membership.node_suspected(node.name)

    # --- reports ----------------------------------------------------------------------------------------

    def _reported(self, node: RemoteNode, report: Report | Usage | Pong) -> None:
        if isinstance(report, Ready):
            self._joined(node, report)
        else:
            handler: Any = self._reports.table.get(type(report))
            if handler is not None:
                handler(node, report)

    def _joined(self, node: RemoteNode, report: Ready) -> None:
        if node.ready:
            raise MessageError("a node is ready once")
        node.enforced, node.missing = frozenset(report.enforced), report.missing
        for tenant, weight in self._weights.items():
            node.send(SetWeight(tenant, weight))
        node.ready = True
        self.give_up(node.name, "it is there with a new agent")
        log.info("a node has joined", node=node.name, address=node.address, devices=len(node.devices))
        self._membership.node_joined(node.spec, node.devices)
        self._drain_again(node)
        self._tell_ready(node)

    def _leaving(self, node: RemoteNode, grace_s: float) -> None:
        self._membership.node_draining(node.name, grace_s)
        self._all_ended(node)

    def _all_ended(self, node: RemoteNode) -> None:
        """Let an agent go that was told to stop, once it has no sandbox."""
        if node.leaving and not node.sandboxes:
            node.leave()


def _check_devices(hello: Hello) -> None:
    """Raise `AdmissionError` for devices that the scheduler cannot know by their names."""
    names = [device.name for device in hello.devices]
    for device in hello.devices:
        problem = next(iter(device_problems(device)), None)
        if problem is None and (names.count(device.name) > 1 or {NODE_SEPARATOR, SEPARATOR} & set(device.name)):
            problem = "its name cannot be used"
        if problem is not None:
            raise AdmissionError(f"device {device.name}: {problem}", again=False)
