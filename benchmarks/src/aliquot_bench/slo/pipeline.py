"""The pipeline of the thesis' table 4.1: pre-processing, a model and post-processing, each on a CPU or a GPU.

The thesis prints goodputs, but not all times. Its columns decode to queues without refusals of 5.0, 12.0 and 4.9 to 5.6
ms for each request, and these times follow: pre-processing takes 2 ms on a CPU and 4 on a GPU, the model 30 and 5,
post-processing 1 and 3. A batch of the model on the GPU takes as long as `vgg_s`, scaled. There is one lane of each
kind, at a price of 1 and 5 for each ms. 1200 requests come within 1.2 s. `pareto_sampled` is the thesis' method on our
plan, so that it also fills batches when they start. `accept_all` runs the stages in the order of their arrival.
"""

from collections.abc import Callable, Sequence
from random import Random

from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, GraphSpec, GraphStage, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot_bench.result import Goal, ResultTable, at_least, at_most
from aliquot_bench.slo.measuring import CLOCKWORK, FIFO, OURS, SAMPLED, SloOutcome, measure, settings_of
from aliquot_bench.slo.networks import Network, read_networks
from aliquot_bench.slo.part import SEED, SloSizes

STAGES_MS = {"pre": (2, 4), "model": (30, 5), "post": (1, 3)}  # on a CPU and on a GPU
GRAPH = GraphSpec(
    "pipeline",
    (GraphStage("pre", "pre"), GraphStage("model", "model", ("pre",)), GraphStage("post", "post", ("model",))),
)
WHOLE = "whole"  # all stages as one call, on one device
REQUESTS, SECONDS = 1200, 1.2
LIMITS_MS = (20, 40, 60, 80)
COST_LIMIT = 60
PRICES = {CPU: 1000.0, "gpu": 5000.0}  # of a second
POLICIES = (OURS, SAMPLED, CLOCKWORK, FIFO)
GOALS = {20: 250, 40: 310, 60: 310, 80: 310}
PRINTED = {  # goodput by latency and by cost: FIFO, Clockwork, the thesis' own
    20: ((0.49, 199.9), (0.069, 83.3), (0.59, 177.35)),
    40: ((1.17, 199.9), (0.208, 83.3), (1.37, 205.8)),
    60: ((1.99, 199.9), (0.34, 83.3), (1.77, 177.3)),
    80: ((2.66, 199.9), (0.42, 83.3), (2.82, 178.7)),
}


class PipelinePart:
    """Compare the requests that meet both limits."""

    name = "the thesis' pipeline"

    def __init__(self, sizes: SloSizes) -> None:
        self._curve = next(network for network in read_networks(sizes.data) if network.name == "vgg_s")
        self._outcomes: dict[tuple[int, str], SloOutcome] = {}
        self.steps = len(LIMITS_MS)

    def run(self, on_step: Callable[[str], None]) -> None:
        for limit_ms in LIMITS_MS:
            on_step(f"the thesis' pipeline: {limit_ms} ms")
            for policy in POLICIES:
                scenario = pipeline(self._curve, limit_ms / 1e3, whole=policy == CLOCKWORK)
                self._outcomes[limit_ms, policy] = measure(scenario, settings_of(policy))

    def _goodput(self, limit_ms: int, policy: str) -> float:
        return self._outcomes[limit_ms, policy].met / SECONDS

    def goals(self) -> Sequence[Goal]:
        goals = [
            at_least(
                f"the thesis' pipeline: both limits met, {limit_ms} ms", self._goodput(limit_ms, OURS), wanted, "/s"
            )
            for limit_ms, wanted in GOALS.items()
        ]
        broken = sum(self._outcomes[limit_ms, OURS].broken for limit_ms in LIMITS_MS)
        return [*goals, at_most("the thesis' pipeline: promises broken", broken, 0, "requests")]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [
                limit_ms,
                *(self._goodput(limit_ms, policy) for policy in POLICIES),
                max(latency for latency, _ in PRINTED[limit_ms]),
                max(cost for _, cost in PRINTED[limit_ms]),
            ]
            for limit_ms in LIMITS_MS
        ]
        columns = ["limit ms", *POLICIES, "printed best, latency alone", "printed best, cost alone"]
        title = f"The thesis' pipeline: requests/s within the latency limit and a cost of {COST_LIMIT}"
        return [ResultTable(title, columns, rows)]

    def panels(self) -> Sequence[PlotPanel]:
        lines = [
            PlotLine(policy, LIMITS_MS, [self._goodput(limit_ms, policy) for limit_ms in LIMITS_MS])
            for policy in POLICIES
        ]
        return [PlotPanel("the thesis' pipeline, 1000 requests/s", "limit ms", "in time per second", lines)]


def pipeline(curve: Network, limit_s: float, *, whole: bool = False) -> Scenario:
    """Return the pipeline with one lane of each kind. `whole` makes it one call, which runs on one device."""
    random = Random(SEED)
    name = WHOLE if whole else GRAPH.name
    arrivals = [
        Arrival(round(random.uniform(0, SECONDS), 6), name, deadline_s=limit_s, cost_limit=COST_LIMIT)
        for _ in range(REQUESTS)
    ]
    devices = [
        DeviceSpec("gpu-1", concurrency=1, price=PRICES["gpu"]),
        DeviceSpec(CPU, CPU, concurrency=1, price=PRICES[CPU]),
    ]
    functions = {WHOLE: _whole(curve)} if whole else {stage: _stage(stage, curve) for stage in STAGES_MS}
    graphs = {} if whole else {GRAPH.name: GRAPH}
    return Scenario(devices, functions, ListedWorkload(arrivals), graphs=graphs)


def _stage(name: str, curve: Network) -> FunctionSpec:
    cpu_ms, gpu_ms = STAGES_MS[name]
    batches = _batches(curve, gpu_ms) if name == "model" else {}
    gpu = Times(gpu_ms / 1e3, 0, 0, batches)
    return FunctionSpec(name, times=gpu, times_by_kind={CPU: Times(cpu_ms / 1e3, 0, 0)}, batch=max(batches, default=1))


def _whole(curve: Network) -> FunctionSpec:
    """Return the three stages as one function. Only the model gains from batches."""
    around_ms = sum(gpu_ms for stage, (_, gpu_ms) in STAGES_MS.items() if stage != "model")
    model_ms = STAGES_MS["model"][1]
    batches = {size: run_s + size * around_ms / 1e3 for size, run_s in _batches(curve, model_ms).items()}
    cpu_s = sum(cpu_ms for cpu_ms, _ in STAGES_MS.values()) / 1e3
    times = Times((model_ms + around_ms) / 1e3, 0, 0, batches)
    return FunctionSpec(WHOLE, times=times, times_by_kind={CPU: Times(cpu_s, 0, 0)}, batch=max(batches))


def _batches(curve: Network, alone_ms: float) -> dict[int, float]:
    scale = alone_ms / 1e3 / curve.times_s[1]
    return {size: round(run_s * scale, 9) for size, run_s in curve.times_s.items() if size > 1}
