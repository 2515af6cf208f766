"""The time of decisions: the placements of a large graph, and a promise among a thousand planned runs."""

import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

from aliquot.assemble import assemble
from aliquot.core.admission.placement import KindChoice, Placements, StageChoices
from aliquot.core.events import DeviceAdded, Event, FunctionDeployed, InvocationArrived, InvocationCancelled
from aliquot.core.model import DEFAULT_TENANT, DeviceSpec, FunctionSpec, Times
from aliquot.core.scheduler import Scheduler
from aliquot.sim.plots import PlotPanel
from aliquot.sim.statistics import quantile
from aliquot_bench.result import Goal, ResultTable, at_most
from aliquot_bench.slo.measuring import OURS, settings_of
from aliquot_bench.slo.part import SEED, SloSizes

STAGES = 40
KINDS = {"cpu": (1.0, 1.0), "small": (2.0, 1.3), "large": (5.0, 1.8), "huge": (10.0, 2.5)}  # speed and price
BLOCKS = 1000
LANES = 4
ROUNDS = 7
ALONE = "the scheduler alone, devices of unbounded memory, D = 1"

Waits = dict[int, tuple[int, ...]]  # stages, and those whose ends they wait for


class DecisionPart:
    """Measure decisions in one process, without a simulator."""

    name = "decisions"
    steps = 2

    def __init__(self, sizes: SloSizes) -> None:
        self._decisions = sizes.decisions
        self._graphs: dict[str, tuple[float, int]] = {}
        self._seconds: list[float] = []

    def run(self, on_step: Callable[[str], None]) -> None:
        on_step("decisions: placements of large graphs")
        for name, stages in graphs().items():
            times, counts = zip(*(_timed(stages) for _ in range(ROUNDS)), strict=True)
            self._graphs[name] = median(times), counts[0]
        on_step(f"decisions: a promise among {BLOCKS} planned runs")
        self._seconds = sorted(decision_times(self._decisions))

    def goals(self) -> Sequence[Goal]:
        slowest = max(seconds for seconds, _ in self._graphs.values())
        p99 = quantile(self._seconds, 0.99)
        return [
            at_most(f"placements of {STAGES} functions on {len(KINDS)} kinds", slowest, 0.1, "s"),
            at_most(f"a decision among {BLOCKS} planned runs on {LANES} lanes, p99", 1e3 * p99, 2, "ms"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [name, 1e3 * seconds, count] for name, (seconds, count) in self._graphs.items()
        ]
        ms = [1e3 * quantile(self._seconds, part) for part in (0.5, 0.99, 1)]
        return [
            ResultTable(
                f"Placements of {STAGES} functions on {len(KINDS)} kinds", ["", "ms", "efficient"], rows, ALONE
            ),
            ResultTable(f"A decision among {BLOCKS} planned runs, ms", ["median", "p99", "longest"], [[*ms]], ALONE),
        ]

    def panels(self) -> Sequence[PlotPanel]:
        return []


def _timed(stages: list[StageChoices]) -> tuple[float, int]:
    began = time.perf_counter()
    count = len(Placements(stages))
    return time.perf_counter() - began, count


def graphs() -> dict[str, list[StageChoices]]:
    """Return a chain, an ensemble, and layers of four that wait for all of the layer before."""
    chain: Waits = {number: (number - 1,) if number else () for number in range(STAGES)}
    middle = tuple(range(1, STAGES - 1))
    ensemble: Waits = {0: (), **dict.fromkeys(middle, (0,)), STAGES - 1: middle}
    layers: Waits = {
        number: tuple(range(4 * (number // 4 - 1), 4 * (number // 4))) if number >= 4 else ()  # noqa: PLR2004
        for number in range(STAGES)
    }
    return {name: _stages(after) for name, after in (("chain", chain), ("ensemble", ensemble), ("layers", layers))}


def _stages(after: Waits) -> list[StageChoices]:
    random = Random(SEED)
    stages = []
    for number, before in after.items():
        base_s = random.uniform(0.001, 0.1)
        choices = tuple(
            KindChoice(kind, base_s / speed * random.uniform(0.8, 1.2), base_s * price * random.uniform(0.8, 1.2))
            for kind, (speed, price) in KINDS.items()
        )
        stages.append(StageChoices(str(number), choices, tuple(map(str, before))))
    return stages


def decision_times(count: int) -> list[float]:
    """Return the seconds of steps in which a call with a limit arrives, while a thousand runs are planned."""
    random = Random(SEED)
    scheduler = assemble(settings_of(OURS))
    functions = [FunctionSpec(f"f{number}", times=Times(0.01, 0, 0)) for number in range(10)]
    events: list[Event] = [DeviceAdded(DeviceSpec(f"gpu-{number}", concurrency=1)) for number in range(LANES)]
    events += [FunctionDeployed(DEFAULT_TENANT, function) for function in functions]
    scheduler.step(0, events)
    planned = [f"planned {number}" for number in range(BLOCKS)]
    for name in planned:
        _arrive(scheduler, name, random, 100 + random.random())
    seconds = []
    for number in range(count):
        limit_s = random.choice((0.05, random.uniform(0.1, 5), 100 + random.random()))
        began = time.perf_counter()
        _arrive(scheduler, f"call {number}", random, limit_s)
        seconds.append(time.perf_counter() - began)
        scheduler.step(0, [InvocationCancelled(f"call {number}")])
    return seconds


def _arrive(scheduler: Scheduler, name: str, random: Random, limit_s: float) -> None:
    scheduler.step(0, [InvocationArrived(name, DEFAULT_TENANT, f"f{random.randrange(10)}", limit_s)])
