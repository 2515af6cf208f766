"""Collect from a server's journal what a simulation of its calls needs: arrivals, times, functions and devices."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from aliquot.core.commands import (
    Command,
    Complete,
    Dispatch,
    Fail,
    LoadMemory,
    Reject,
    Run,
    Start,
    StartSandbox,
    StopSandbox,
)
from aliquot.core.events import (
    DeviceAdded,
    DeviceLost,
    Event,
    FunctionDeployed,
    HostMemorySet,
    InvocationArrived,
    MemoryLoaded,
    NodeJoined,
    NodeLost,
    RunFinished,
    SandboxStarted,
    TenantWeightSet,
)
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec, NodeSpec
from aliquot.core.scheduler import Scheduler
from aliquot.live.history.records import CallEnd
from aliquot.live.invocations.journal.writer import JournalStep

MAX_CALLS = 100_000


class RecordedCall:
    """A call as the journal has it. Times are epoch seconds."""

    __slots__ = ("arrival", "arrived", "began", "dispatched", "end", "ended", "flow", "kind", "run_s", "size", "start")

    def __init__(self, arrival: InvocationArrived, now: float) -> None:
        self.arrival = arrival
        self.flow = FlowKey(arrival.tenant, arrival.function)
        self.arrived = now
        self.dispatched: float | None = None
        self.start: Start | None = None
        self.kind = ""  # of the device that it ran on
        self.began: float | None = None  # when its run began
        self.size = 1  # calls that ran together with it, and itself
        self.run_s: float | None = None
        self.ended: float | None = None
        self.end = CallEnd.OPEN


class _LiveSandbox(NamedTuple):
    """A sandbox, and when its start or the loading of its memory began, if the journal was read from there."""

    flow: FlowKey
    kind: str
    since: float | None


class DurationKey(NamedTuple):
    """The key of measured durations: the times differ by function and by kind of device."""

    flow: FlowKey
    kind: str


class Recording:
    """Takes the steps of a journal one after another, and keeps the newest calls."""

    def __init__(self, max_calls: int = MAX_CALLS) -> None:
        self._max_calls = max_calls
        self.calls: OrderedDict[str, RecordedCall] = OrderedDict()
        self.dropped = 0  # calls that were too many
        self.devices: dict[str, DeviceSpec] = {}
        self.nodes: dict[str, NodeSpec] = {}
        self.weights: dict[str, float] = {}
        self.functions: dict[FlowKey, FunctionSpec] = {}
        self.starts: defaultdict[DurationKey, list[float]] = defaultdict(list)
        self.loads: defaultdict[DurationKey, list[float]] = defaultdict(list)
        self._sandboxes: dict[int, _LiveSandbox] = {}
        self._finished: dict[int, float] = {}  # the end of the last run of each sandbox
        self._batches: dict[str, tuple[str, ...]] = {}  # the other members of a run, by its name
        self._takers = self._make_takers()

    def _make_takers(self) -> dict[type[Event | Command], Callable[..., None]]:
        return {
            DeviceAdded: lambda event, _: self._add_device(event.device),
            DeviceLost: self._lose_device,
            NodeJoined: self._join,
            NodeLost: self._lose_node,
            HostMemorySet: self._bound_host,
            TenantWeightSet: lambda event, _: self.weights.update({event.tenant: event.weight}),
            FunctionDeployed: self._deploy,
            InvocationArrived: self._arrive,
            SandboxStarted: lambda event, now: self._note(self.starts, event.sandbox, now),
            MemoryLoaded: lambda event, now: self._note(self.loads, event.sandbox, now),
            RunFinished: self._finish_run,
            StartSandbox: self._start,
            LoadMemory: self._load,
            StopSandbox: self._stop,
            Dispatch: self._dispatch,
            Run: self._run,
            Complete: lambda command, now: self._end(command.invocation, CallEnd.COMPLETED, now),
            Fail: lambda command, now: self._end(command.invocation, CallEnd.FAILED, now),
            Reject: lambda command, now: self._end(command.invocation, CallEnd.REFUSED, now),
        }

    def begin(self, scheduler: Scheduler) -> None:
        """Take the state that the reading, or a run of the server, begins with."""
        registry = scheduler.registry
        self.devices = {name: device.spec for name, device in registry.devices.items()}
        self.nodes = {name: node.spec for name, node in registry.nodes.items()}
        for name, node in registry.nodes.items():
            if node.host.limit is not None:
                self.nodes[name] = NodeSpec(name, node.host.limit, node.spec.bandwidth_bytes_s)
        self.weights = dict(registry.tenant_weights)
        self.functions.update((flow.key, flow.spec) for flow in registry.flows.values())
        self._sandboxes = {
            number: _LiveSandbox(sandbox.flow.key, sandbox.device.spec.kind, None)
            for number, sandbox in scheduler.pool.sandboxes.items()
        }
        self._finished.clear()
        self._batches.clear()

    def take(self, step: JournalStep, now: float) -> None:
        """Take a step that happened at `now`, in epoch seconds."""
        takers = self._takers
        for message in (*step.events, *step.commands):
            taker = takers.get(type(message))
            if taker is not None:
                taker(message, now)

    def forget_before(self, begin_s: float) -> None:
        """Forget the calls that arrived before this time, in epoch seconds."""
        while self.calls and next(iter(self.calls.values())).arrived < begin_s:
            self.calls.popitem(last=False)

    # --- devices and functions --------------------------------------------------------------------------

    def _add_device(self, device: DeviceSpec) -> None:
        self.devices[device.name] = device

    def _lose_device(self, event: DeviceLost, _now: float) -> None:
        self.devices.pop(event.device, None)

    def _join(self, event: NodeJoined, _now: float) -> None:
        self.nodes[event.spec.name] = event.spec
        for device in event.devices:
            self._add_device(device)

    def _lose_node(self, event: NodeLost, _now: float) -> None:
        self.nodes.pop(event.node, None)
        self.devices = {name: device for name, device in self.devices.items() if device.node != event.node}

    def _bound_host(self, event: HostMemorySet, _now: float) -> None:
        self.nodes[event.node] = NodeSpec(event.node, event.memory_bytes)

    def _deploy(self, event: FunctionDeployed, _now: float) -> None:
        self.functions[FlowKey(event.tenant, event.function.name)] = event.function

    # --- sandboxes --------------------------------------------------------------------------------------

    def _start(self, command: StartSandbox, now: float) -> None:
        device = self.devices.get(command.place[0])
        flow = FlowKey(command.tenant, command.function)
        self._sandboxes[command.sandbox] = _LiveSandbox(flow, device.kind if device else "", now)

    def _load(self, command: LoadMemory, now: float) -> None:
        sandbox = self._sandboxes.get(command.sandbox)
        if sandbox is not None:
            self._sandboxes[command.sandbox] = sandbox._replace(since=now)

    def _stop(self, command: StopSandbox, _now: float) -> None:
        self._sandboxes.pop(command.sandbox, None)
        self._finished.pop(command.sandbox, None)

    def _note(self, durations: dict[DurationKey, list[float]], number: int, now: float) -> None:
        sandbox = self._sandboxes.get(number)
        if sandbox is not None and sandbox.since is not None:
            durations[DurationKey(sandbox.flow, sandbox.kind)].append(now - sandbox.since)

    # --- calls ------------------------------------------------------------------------------------------

    def _arrive(self, event: InvocationArrived, now: float) -> None:
        if event.invocation in self.calls:  # a restarted server takes it up again
            return
        self.calls[event.invocation] = RecordedCall(event, now)
        if len(self.calls) > self._max_calls:
            self.calls.popitem(last=False)
            self.dropped += 1

    def _dispatch(self, command: Dispatch, now: float) -> None:
        call = self.calls.get(command.invocation)
        sandbox = self._sandboxes.get(command.sandbox)
        if call is not None:
            call.dispatched, call.start = now, command.start
            call.kind = sandbox.kind if sandbox is not None else ""

    def _run(self, command: Run, now: float) -> None:
        members = (command.invocation, *command.riders)
        if command.riders:
            self._batches[command.invocation] = members
        for name in members:
            call = self.calls.get(name)
            if call is not None:
                call.began, call.size = now, len(members)

    def _finish_run(self, event: RunFinished, now: float) -> None:
        """Note how long a run took. One that was handed ahead began when the run before it ended."""
        before = self._finished.get(event.sandbox)
        self._finished[event.sandbox] = now
        for name in self._batches.pop(event.invocation, (event.invocation,)):
            call = self.calls.get(name)
            if call is None or call.dispatched is None:
                continue
            if call.began is None:
                call.began = max(before or call.dispatched, call.dispatched)
            call.run_s = max(0.0, now - call.began)

    def _end(self, invocation: str, end: CallEnd, now: float) -> None:
        call = self.calls.get(invocation)
        if call is not None and call.end is CallEnd.OPEN:
            call.end, call.ended = end, now


def median_of(durations: dict[DurationKey, list[float]], flow: FlowKey, kind: str | None = None) -> float | None:
    """Return the median duration of a function, on one kind of device or on all, or of all functions if it has none."""
    own = [
        value for key, values in durations.items() if key.flow == flow and kind in (None, key.kind) for value in values
    ]
    if own:
        return median(own)
    if kind is not None:
        return None
    every = [value for values in durations.values() for value in values]
    return median(every) if every else None
