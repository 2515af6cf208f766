"""`aliquot bench sim`: the speed of the simulator and of its decisions, compared with a bare heap."""

import gc
import resource
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median

from aliquot.config import PolicySettings
from aliquot.core.commands import Command, Run, StartSandbox
from aliquot.core.events import Event, InvocationArrived, RunFinished, SandboxStarted
from aliquot.core.model import DeviceSpec
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, WorkloadOverview, make_overview
from aliquot.sim.collecting import few_collections
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot.sim.report import RunReport
from aliquot.sim.workloads import WorkloadSpec, make_arrivals, make_functions
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type
from aliquot_bench.base import BenchRequest
from aliquot_bench.cluster import NODE_LOAD, SeparateNodes, simulate_cluster
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least, at_most

POLICY = "fair_resident"
MILLION = 1_000_000
GOAL_S = 45
FLOWS = (10, 100, 1000, 10_000)
DEVICES = (4, 64, 400, 4000)
NODES, QUICK_NODES = (1, 10, 100, 1000), (1, 10, 50)
SEPARATE_NODES, QUICK_SEPARATE_NODES = 100, 50  # each with a scheduler of its own, for the comparison
LOADS = {"half load": 1, "full load": 2}  # calls in flight for each device, which has two slots


class StreamedWorkload:
    """A generated workload that is never held in memory."""

    def __init__(self, calls: int) -> None:
        self._functions = make_functions(100, 0)
        self._spec = WorkloadSpec(load=0.9, devices=4, duration_s=1e9, zipf=1)
        self._calls = calls

    def __iter__(self) -> Iterator[Arrival]:
        return islice(make_arrivals(self._functions, self._spec), self._calls)

    def overview(self) -> WorkloadOverview:
        return make_overview(self)


class SimulatorBench:
    """The benchmark `sim`."""

    assumed = "4 devices of 16 GiB, D = 2, no interference, private bus"
    needs_data = False
    steps = 5

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick
        self._calls = MILLION // 10 if request.quick else MILLION
        self._decision_us: dict[int, float] = {}
        self._device_us: dict[tuple[str, int], float] = {}  # by load and number of devices
        self._nodes = QUICK_NODES if request.quick else NODES
        self._separate_nodes = QUICK_SEPARATE_NODES if request.quick else SEPARATE_NODES

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        on_step(f"{self._calls} calls of 100 functions")
        seconds, events = self._simulate()
        on_step(f"a bare heap with {events} entries")
        heap_s = median(bare_heap_s(events) for _ in range(3))
        on_step("decisions among 10 to 10 000 flows")
        for _ in range(3):  # interleaved, so that a disturbance of the machine affects all alike
            for flows in FLOWS:
                self._decision_us[flows] = min(decision_us(flows), self._decision_us.get(flows, 1e9))
        on_step("decisions on 4 to 4 000 devices")
        for _ in range(3):
            for load, in_flight in LOADS.items():
                for devices in DEVICES:
                    spent = device_decision_us(devices, in_flight * devices)
                    self._device_us[load, devices] = min(spent, self._device_us.get((load, devices), 1e9))
        on_step(f"{self._nodes[0]} to {self._nodes[-1]} nodes of four devices")
        scaled = {nodes: simulate_cluster(nodes, POLICY) for nodes in self._nodes}
        separate = SeparateNodes(self._separate_nodes, POLICY)
        million_s = seconds * MILLION / self._calls
        goals = [
            at_most(f"1 000 000 calls of 100 functions under {POLICY}", million_s, GOAL_S, "s"),
            at_most(
                "a decision among 10 000 flows against 10",
                self._decision_us[10_000] / self._decision_us[10],
                1.5,
                "times",
            ),
            *(
                at_most(
                    f"a decision on {DEVICES[-1]} devices against {DEVICES[0]}, {load}",
                    self._device_us[load, DEVICES[-1]] / self._device_us[load, DEVICES[0]],
                    2,
                    "times",
                )
                for load in LOADS
            ),
            *_scaling_goals(scaled, separate),
        ]
        figures = ResultTable(
            "The simulator beside a bare heap",
            ["", "events", "processor seconds", "events per second"],
            [
                [f"{POLICY}, {self._calls} calls", events, seconds, events / seconds],
                ["heapq alone, as many entries", events, heap_s, events / heap_s],
            ],
        )
        decisions = ResultTable(
            "One call: arrival, decision, finish",
            ["flows", "µs"],
            [[n, us] for n, us in self._decision_us.items()],
            "the scheduler alone, 2 devices of unbounded memory, D = 2",
        )
        by_devices = ResultTable(
            "One call by the number of devices, with two slots each",
            ["devices", *(f"{load}, µs" for load in LOADS)],
            [[devices, *(self._device_us[load, devices] for load in LOADS)] for devices in DEVICES],
            "the scheduler alone, devices of 16 GiB, D = 2",
        )
        by_nodes = ResultTable(
            f"Nodes of four devices with one slot each, load {NODE_LOAD}",
            ["nodes", "calls", "calls per second and node", "mean latency, s", "Jain's index"],
            [_separate_row(separate), *(_cluster_row(nodes, run) for nodes, run in scaled.items())],
            "devices of 16 GiB, D = 1, no interference, private bus",
        )
        memory = ResultTable(
            "Memory", ["", "MiB"], [["largest so far", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]]
        )
        return BenchResult("sim", self._quick, goals, [figures, decisions, by_devices, by_nodes, memory], self.assumed)

    def draw(self, path: Path) -> None:
        line = PlotLine(POLICY, list(self._decision_us), list(self._decision_us.values()))
        lines = [PlotLine(load, [*DEVICES], [self._device_us[load, n] for n in DEVICES]) for load in LOADS]
        panels = [
            PlotPanel("One call: arrival, decision, finish", "flows", "µs", [line], log_x=True),
            PlotPanel("The same with ten flows", "devices", "µs", lines, log_x=True),
        ]
        draw_panels(panels, "What a decision costs", path, columns=2)

    def _simulate(self) -> tuple[float, int]:
        """Simulate the workload, and return the seconds and the number of events."""
        workload = StreamedWorkload(self._calls)
        devices = [DeviceSpec(f"gpu-{number}", memory_bytes=16 * GIB) for number in range(1, 5)]
        scenario = Scenario(devices, make_functions(100, 0), workload)
        known = workload.overview()
        gc.collect()
        began = time.process_time()  # other programs on the machine do not count
        simulate(scenario, PolicySettings(POLICY), overview=known)
        return time.process_time() - began, 2 * self._calls


def bare_heap_s(entries: int) -> float:
    """Return the seconds to push and pop so many entries, with few in the heap at a time."""
    random = Random(0)
    heap: list[tuple[float, int]] = []
    began = time.perf_counter()
    for number in range(entries):
        heappush(heap, (number + random.random() * 10, number))
        if len(heap) > 10:  # noqa: PLR2004 - about as many as a simulation has
            heappop(heap)
    return time.perf_counter() - began


def decision_us(flows: int, turns: int = 2000) -> float:
    """Return the microseconds of processor time that one call costs the core, with all flows backlogged.

    A call is an arrival, a decision and a finish. Each flow has run before and has a sandbox, however many there are.
    Objects of the set-up are not searched for garbage meanwhile.
    """
    names = [f"f{number}" for number in range(flows)]
    harness = Harness(
        POLICY,
        devices=[device(f"gpu-{number}", concurrency=2, memory_bytes=None) for number in (1, 2)],
        functions=[function(name, cold_s=0, memory_bytes=1) for name in names],
    )
    scheduler = harness.scheduler
    commands = scheduler.step(1, [InvocationArrived(f"x{name}", "default", name) for name in names])
    running: list[Run] = []

    def follow(commands: list[Command]) -> None:
        running.extend(of_type(Run, commands))
        for start in of_type(StartSandbox, commands):
            running.extend(of_type(Run, scheduler.step(scheduler.now, [SandboxStarted(start.sandbox)])))

    follow(commands)
    spent = 0.0
    with few_collections():
        for turn in range(flows + turns):
            if turn == flows:
                spent = 0.0
            done = running.pop(0)
            events: list[Event] = [
                RunFinished(done.invocation, done.sandbox, 1),
                InvocationArrived(f"z{turn}", "default", names[turn % flows]),
            ]
            began = time.process_time()
            commands = scheduler.step(scheduler.now + 0.001, events)
            spent += time.process_time() - began
            follow(commands)
    return 1e6 * spent / turns


def device_decision_us(devices: int, in_flight: int, turns: int = 1000) -> float:
    """Return the microseconds of processor time that a call of ten functions costs, with so many calls in flight."""
    names = [f"f{number}" for number in range(10)]
    harness = Harness(
        POLICY,
        devices=[device(f"gpu-{number}", concurrency=2) for number in range(devices)],
        functions=[function(name, cold_s=0.5, load_s=0.1, memory_bytes=1) for name in names],
    )
    scheduler = harness.scheduler
    running: list[Run] = []
    spent, calls = 0.0, 0

    def step(events: list[Event]) -> None:
        nonlocal spent
        began = time.process_time()
        commands = scheduler.step(scheduler.now + 0.5 / in_flight, events)  # two steps a call, so a run takes a second
        spent += time.process_time() - began
        running.extend(of_type(Run, commands))
        while started := [SandboxStarted(start.sandbox) for start in of_type(StartSandbox, commands)]:
            commands = scheduler.step(scheduler.now, started)
            running.extend(of_type(Run, commands))

    def call() -> list[Event]:
        nonlocal calls
        calls += 1
        return [InvocationArrived(str(calls), "default", names[7 * calls % 10])]

    for _ in range(in_flight + 20 * (in_flight > devices)):  # full load leaves a backlog
        step(call())
    with few_collections():
        for turn in range(devices + turns):
            if turn == devices:
                spent = 0.0
            done = running.pop(0)
            step([RunFinished(done.invocation, done.sandbox, 1)])
            step(call())
    return 1e6 * spent / turns


def per_node(run: RunReport, nodes: int) -> float:
    """Return the calls that a node completed in a second."""
    return run.completed / run.makespan_s / nodes


def _separate_row(nodes: SeparateNodes) -> list[str | float | None]:
    name = f"{nodes.nodes}, each with its own scheduler"
    return [name, nodes.completed, nodes.per_second, nodes.mean_s, nodes.jain]


def _cluster_row(nodes: int, run: RunReport) -> list[str | float | None]:
    return [nodes, run.completed, per_node(run, nodes), run.latency_s.mean, run.fairness.jain]


def _scaling_goals(scaled: dict[int, RunReport], separate: SeparateNodes) -> list[Goal]:
    most = max(scaled)
    run = scaled[most]
    throughput, jain = per_node(run, most) / separate.per_second, run.fairness.jain / separate.jain
    against = f"on {most} nodes against nodes with schedulers of their own, load {NODE_LOAD}"
    return [
        at_least(f"throughput per node {against}", throughput, 0.95, "times"),
        at_least(f"Jain's index {against}", jain, 0.95, "times"),
    ]
