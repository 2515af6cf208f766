"""The simulation loop: take the next events from the queue, step the core, and perform its commands."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.clock import after
from aliquot.core.commands import (
    BreakPromise,
    CancelFetch,
    Command,
    Complete,
    Dispatch,
    Fail,
    Fetch,
    LoadMemory,
    Predict,
    Promise,
    Reject,
    Run,
    StartSandbox,
    UnloadMemory,
    WakeAt,
    WantDevices,
)
from aliquot.core.errors import SchedulerError
from aliquot.core.events import (
    DeviceAdded,
    Event,
    FunctionDeployed,
    GraphDeployed,
    HostMemorySet,
    InvocationArrived,
    NodeJoined,
    NodeLost,
    RunFinished,
    TenantWeightSet,
)
from aliquot.core.interfaces import Queueing
from aliquot.core.invariants import check
from aliquot.core.model import DeviceSpec, FunctionSpec, GraphSpec, NodeSpec
from aliquot.sim.arrivals import Arrival, Workload, WorkloadOverview
from aliquot.sim.clairvoyant import queueing_policies
from aliquot.sim.collecting import few_collections
from aliquot.sim.contention import InterferenceCurve
from aliquot.sim.elastic import ElasticDevices, ElasticSettings
from aliquot.sim.event_queue import EventQueue
from aliquot.sim.executions import SimulatedExecutions
from aliquot.sim.fabric.fabric import SimulatedFabric
from aliquot.sim.fabric.storage import StorageSettings
from aliquot.sim.forecasting.forecaster import ForecastSettings, make_source, with_forecasts
from aliquot.sim.graphs import called_flows
from aliquot.sim.machine import FunctionPlacement, SimulatedMachine
from aliquot.sim.nodes import NodeLoss
from aliquot.sim.recorder import CallLine, DispatchLine, RunRecorder, SimulatedCall, recorder_of
from aliquot.sim.results import ResultSettings, SimulatedResults
from aliquot.sim.sessions import SessionExpiry

PROGRESS_EVERY = 500  # ended calls between two reports of progress
FAIRNESS_SAMPLES = 60  # evenly spread over the arrivals


class Scenario(Struct):
    """Everything that defines a simulation, except the policies."""

    devices: list[DeviceSpec]
    functions: dict[str, FunctionSpec]
    workload: Workload
    tenant_weights: dict[str, float] = {}
    interference: InterferenceCurve | None = None
    shared_bus: bool = False  # concurrent transfers to one device slow each other down
    check: bool = False  # check the core's invariants after every step
    storage: StorageSettings = StorageSettings()
    host_memory_bytes: int | None = None  # for all sandboxes of a node together; None means unbounded
    nodes: list[NodeSpec] = []  # the nodes that devices belong to, unless they belong to one without a name
    losses: list[NodeLoss] = []
    graphs: dict[str, GraphSpec] = {}  # an arrival may name one of them instead of a function
    results: ResultSettings = ResultSettings()
    forecasting: ForecastSettings = ForecastSettings()
    elastic: ElasticSettings | None = None  # devices whose number follows the demand

    def deployed(self, function: str) -> FunctionSpec:
        """Return the function as it is deployed. Its sandboxes claim host memory for their bytes, unless it says."""
        spec = self.functions[function]
        bounded = self.host_memory_bytes is not None or any(node.host_memory_bytes is not None for node in self.nodes)
        if not bounded or spec.host_bytes:
            return spec
        return replace(spec, host_bytes=spec.memory_bytes)


class Simulation:
    """One run of one scenario under one set of policies."""

    def __init__(
        self,
        scenario: Scenario,
        settings: PolicySettings,
        overview: WorkloadOverview,
        queueing: Mapping[str, type[Queueing]],
        on_dispatch: Callable[[DispatchLine], None] | None,
        on_end: Callable[[CallLine], None] | None = None,
    ) -> None:
        self._scenario = scenario
        self._flows = called_flows(overview.flows, scenario.graphs)
        self._graphs = [key for key in overview.flows if key.function in scenario.graphs]
        self._sample_every_s = overview.last_s / FAIRNESS_SAMPLES
        self.scheduler = assemble(settings, queueing)
        self._queue = EventQueue()
        for loss in scenario.losses:
            self._queue.add(after(0, loss.at_s), NodeLost(loss.node, "as `--lose` says"))
        self._sessions = SessionExpiry(self._queue)
        self._machine = SimulatedMachine(
            scenario.devices,
            scenario.functions,
            self._queue,
            scenario.interference,
            shared_bus=scenario.shared_bus,
            sliced=settings.sharing != "hard",
        )
        self.elastic = ElasticDevices(scenario.elastic, scenario.devices, self._queue)
        self._fabric = SimulatedFabric(scenario.storage, scenario.workload, self._queue)
        self._calls: dict[str, SimulatedCall] = {}
        self._next_number = 0
        self.ended = 0
        self.recorder = recorder_of(scenario.functions, self._flows, scenario.tenant_weights, on_dispatch, on_end)
        self.recorder.add_graphs(self._graphs)
        self._executions = SimulatedExecutions(scenario.graphs, self._queue.add, self.recorder)
        self._results = SimulatedResults(scenario.results, scenario.tenant_weights, self.recorder)
        source = make_source(
            scenario.forecasting, self.scheduler.foresight.policy.step_s, scenario.workload, scenario.functions
        )
        self._performers = with_forecasts(self._make_performers(), source, self._queue, self._calls, overview.last_s)
        self._has_files = bool(scenario.storage.files)
        self._shares_compute = self._machine.shares_compute
        self._checks = scenario.check

    def _make_performers(self) -> dict[type[Command], Callable[..., None]]:
        return {
            Dispatch: self._dispatch,
            Run: self._run,
            Complete: self._complete,
            Reject: self._reject,
            Promise: self._promise,
            BreakPromise: self._break_promise,
            Fail: self._fail,
            StartSandbox: self._start_sandbox,
            LoadMemory: self._load_memory,
            UnloadMemory: self._move_bytes,
            **self._machine.performers(),
            WantDevices: self.elastic.want,
            WakeAt: self._set_wake,
            Predict: self._fabric.predict,
            Fetch: self._fabric.fetch,
            CancelFetch: self._fabric.cancel,
        }

    def moments(self) -> Iterator[float]:
        """Run to the end, and yield the time of each step."""
        arrivals = iter(self._scenario.workload)
        step, take, recorder = self._step, self._queue.take, self.recorder
        step(0, self._setup_events())
        arrival = next(arrivals, None)
        arrives_at = inf if arrival is None else arrival.time_s
        sample_at = self._sample_every_s or inf
        while True:
            now, events = take(arrives_at)
            if now == inf:
                break
            if arrives_at > now:
                step(now, events)
            else:
                while arrival is not None and arrives_at == now:
                    events += self._arrive(arrival, now)
                    arrival = next(arrivals, None)
                    arrives_at = inf if arrival is None else arrival.time_s
                step(now, events)
                recorder.step_ended(now)
            if now >= sample_at:
                recorder.sample_fairness(now)
                sample_at = now + self._sample_every_s
            yield now
        self._finish()

    def _setup_events(self) -> list[Event]:
        scenario = self._scenario
        return list(
            chain(
                self._joining(),
                (TenantWeightSet(tenant, weight) for tenant, weight in scenario.tenant_weights.items()),
                (FunctionDeployed(key.tenant, scenario.deployed(key.function)) for key in self._flows),
                (GraphDeployed(key.tenant, scenario.graphs[key.function]) for key in self._graphs),
            )
        )

    def _joining(self) -> Iterator[Event]:
        """Yield the events with which devices and nodes come."""
        scenario = self._scenario
        bound = scenario.host_memory_bytes
        of_node: dict[str, list[DeviceSpec]] = {node.name: [] for node in scenario.nodes}
        for device in scenario.devices:
            of_node.setdefault(device.node, []).append(device)
        for node in scenario.nodes:
            spec = node if node.host_memory_bytes is not None else replace(node, host_memory_bytes=bound)
            yield NodeJoined(spec, tuple(of_node.pop(node.name)))
        for name, devices in of_node.items():
            yield from (DeviceAdded(device) for device in devices if self.elastic.starts_with(device))
            if bound is not None:
                yield HostMemorySet(bound, name)

    def _arrive(self, arrival: Arrival, now: float) -> list[Event]:
        """Return the event of an arrival, or none if its result is kept or it waits for an equal call."""
        name = str(self._next_number)
        self._next_number += 1
        if arrival.key is not None and self._results.take(name, arrival, now):
            return []
        if arrival.function in self._scenario.graphs:
            return [self._executions.arrive(name, arrival)]
        self._calls[name] = self.recorder.arrived(arrival, now)
        _, function, tenant, _, deadline_s, cost_limit, session, _, late, _ = arrival
        if session is not None:
            self._sessions.arrived(arrival, now)
        return [InvocationArrived(name, tenant, function, deadline_s, cost_limit, session, late)]

    def _step(self, now: float, events: list[Event]) -> None:
        if self._has_files:
            self._fabric.observe(events)
        if self._shares_compute:
            self._machine.finished([event for event in events if type(event) is RunFinished], now)
        if self._machine.moves:
            self._machine.moved(events, now)
        elastic = self.elastic if self._scenario.elastic is not None else None
        if elastic is not None:
            elastic.before_step(events, now)
        performers = self._performers
        for command in self.scheduler.step(now, events):
            performers[type(command)](command, now)
        if self._graphs:
            self.recorder.step_ended(now)
            self._executions.step_ended(now)
            self._calls.update(self._executions.calls)
            self._executions.calls.clear()
        if elastic is not None:
            elastic.after_step(self.scheduler, now)
        if self._checks:
            check(self.scheduler)

    # --- performing commands ----------------------------------------------------------------------------

    def _dispatch(self, command: Dispatch, now: float) -> None:
        self.recorder.dispatched(self._calls[command.invocation], command, now)

    def _run(self, command: Run, now: float) -> None:
        call, placement = self._calls[command.invocation], self._machine.placement(command.sandbox)
        arrival = call.arrival
        if command.riders:
            self._run_batch(command, placement, now)
            return
        self.recorder.started(call, placement.total, placement.price_s, now, accelerated=placement.accelerated)
        if arrival.reads:
            self._fabric.read(command.invocation, arrival, now, partial(self._compute, command, arrival.run_s, now))
        else:
            self._machine.run(command, arrival.run_s, now)

    def _run_batch(self, command: Run, placement: FunctionPlacement, now: float) -> None:
        """Run a batch. It takes as long as its longest member would with so many equal ones."""
        calls = {name: self._calls[name] for name in (command.invocation, *command.riders)}
        share, price_s = placement.total / len(calls), placement.price_s / len(calls)
        for call in calls.values():
            self.recorder.started(call, share, price_s, now, accelerated=placement.accelerated)
        actual = [call.arrival.run_s for call in calls.values() if call.arrival.run_s is not None]
        longest = max(actual) if len(actual) == len(calls) else None
        reading = {name: call.arrival for name, call in calls.items() if call.arrival.reads}
        if not reading:
            self._machine.run(command, longest, now)
            return

        def read(name: str, at: float) -> None:
            del reading[name]
            if not reading:
                self._compute(command, longest, now, at)

        for name, arrival in list(reading.items()):
            self._fabric.read(name, arrival, now, partial(read, name))

    def _compute(self, command: Run, run_s: float | None, began: float, now: float) -> None:
        """Compute after the call has read its files. The core counts the reading as part of the run."""
        self._machine.run(command, run_s, now, began=began)

    def _complete(self, command: Complete, now: float) -> None:
        call = self._calls.pop(command.invocation)
        if call.arrival.reads:
            self._fabric.close(command.invocation, now)
        self.recorder.finished(call, now)
        self.ended += 1
        if call.arrival.key is not None:
            self._results.completed(command.invocation, now - call.started, now)
        if call.arrival.session is not None:
            self._sessions.ended(call.arrival, now)
        if self._graphs:
            self._executions.call_ended(command.invocation, call.cost(now), now)

    def _reject(self, command: Reject, now: float) -> None:
        if command.invocation in self._executions:
            self._executions.refused(command.invocation, command.refusal, now)
            self.ended += 1
            return
        call = self._calls.pop(command.invocation)
        self.recorder.rejected(call, command.refusal, now)
        self._ended(command.invocation, call, now)
        self._executions.call_ended(command.invocation, 0, now, failed=True)

    def _promise(self, command: Promise, _now: float) -> None:
        if command.invocation in self._executions:
            self._executions.promised(command.invocation)
        else:
            self._calls[command.invocation].promised = True

    def _break_promise(self, command: BreakPromise, _now: float) -> None:
        if command.invocation in self._executions:
            self._executions.broken(command.invocation, command.blame)
        else:
            self._calls[command.invocation].blame = command.blame

    def _ended(self, name: str, call: SimulatedCall, now: float) -> None:
        self.ended += 1
        for arrival in self._results.failed(name):
            for event in self._arrive(arrival, now):
                self._queue.add(now, event)
        if call.arrival.session is not None:
            self._sessions.ended(call.arrival, now)

    def _fail(self, command: Fail, now: float) -> None:
        call = self._calls.pop(command.invocation)
        if not self._scenario.losses and call.blame is None:
            raise SchedulerError(f"the core failed a call, although no node is lost: {command.reason}")
        if call.arrival.reads:
            self._fabric.close(command.invocation, now)
        self.recorder.failed(call, now)
        self._ended(command.invocation, call, now)
        self._executions.call_ended(command.invocation, 0, now, failed=True)

    def _start_sandbox(self, command: StartSandbox, now: float) -> None:
        self._machine.start(command, now)
        self._move_bytes(command, now)

    def _load_memory(self, command: LoadMemory, now: float) -> None:
        self._machine.load(command, now)
        self._move_bytes(command, now)

    def _move_bytes(self, command: StartSandbox | LoadMemory | UnloadMemory, _now: float) -> None:
        self.recorder.moved(self._machine.placement(command.sandbox).bytes_to_move)

    def _set_wake(self, command: WakeAt, _now: float) -> None:
        self._queue.set_wake(command.at)

    def _finish(self) -> None:
        self.recorder.finish(self._fabric.figures())
        self.elastic.finish(self.scheduler.now)
        left = self.scheduler.invocations.values()
        if left:
            stories = "; ".join(invocation.describe() for invocation in list(left)[:3])
            raise SchedulerError(f"{len(left)} calls never ended, the first of them: {stories}")


def simulate(
    scenario: Scenario,
    settings: PolicySettings,
    *,
    overview: WorkloadOverview | None = None,
    on_dispatch: Callable[[DispatchLine], None] | None = None,
    on_end: Callable[[CallLine], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> RunRecorder:
    """Run the scenario to its end. `on_progress` receives the number of ended calls from time to time."""
    simulation = Simulation(
        scenario,
        settings,
        overview or scenario.workload.overview(),
        queueing_policies(settings.queueing, scenario.workload),
        on_dispatch,
        on_end,
    )
    with few_collections():
        reported = 0
        for _ in simulation.moments():
            if on_progress is not None and simulation.ended - reported >= PROGRESS_EVERY:
                reported = simulation.ended
                on_progress(reported)
    if on_progress is not None:
        on_progress(simulation.ended)
    return simulation.recorder
