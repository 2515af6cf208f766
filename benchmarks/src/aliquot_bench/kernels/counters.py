"""Counters: what a run of four products causes, on a real device and as computed, against the published accounting."""

from collections.abc import Callable, Sequence
from json import dumps

import numpy as np
from msgspec.structs import asdict

from aliquot.kernels.backends import open_backend
from aliquot.kernels.counters import KernelCounters, count_run
from aliquot.kernels.executor.residents import DeviceConstants, ResidentGraph
from aliquot.kernels.graph import KernelGraph
from aliquot.kernels.plan import plan_memory
from aliquot.kernels.reading import read_graph
from aliquot.sim.plots import PlotPanel
from aliquot_bench.environments import MeasurementError
from aliquot_bench.kernels.graphs import Blobs, Document, gemm_chain
from aliquot_bench.kernels.part import KernelSizes, exactly
from aliquot_bench.result import Goal, ResultTable

SIZE = 1024
KAAS_BYTES = (37_748_864, 20_971_520)  # published for the same graph, cold and warm: it zeroed over the bus
FIELDS = ("misses", "hits", "kernel_misses", "kernel_hits", "bytes_in", "bytes_out")
EXPECTED = {
    "cold": (13, 3, 1, 3, 20_971_648, 4_194_304),
    "warm": (5, 11, 0, 4, 4_194_304, 4_194_304),
    "equal constants, cold": (10, 6, 1, 3, 20_971_552, 4_194_304),
}
ON_DEVICE = "input on the device already (computed)"


class CountersPart:
    """The part `counters`."""

    name = "counters"
    steps = 2

    def __init__(self, _sizes: KernelSizes) -> None:
        self._found: dict[str, KernelCounters] = {}
        self._plan = (0, 0)

    def run(self, on_step: Callable[[str], None]) -> None:
        on_step("counters of four products of 1024 x 1024")
        graph, blobs = _read(*gemm_chain(SIZE))
        plan = plan_memory(graph)
        self._plan = plan.memory_bytes, plan.run_bytes
        constants = list(blobs)
        compiled = [("p", "gemm")]
        self._found[ON_DEVICE] = count_run(graph, constants=constants, inputs=["x"], compiled=compiled)
        cold, warm = _run_twice(graph, blobs)
        self._found |= {"cold": cold, "warm": warm}
        on_step("the same with equal constants")
        equal, blobs = _read(*gemm_chain(SIZE, equal_sizes=True))
        self._found["equal constants, cold"], _ = _run_twice(equal, blobs)

    def goals(self) -> Sequence[Goal]:
        goals = []
        for case, expected in EXPECTED.items():
            found = asdict(self._found[case])
            goals += [
                exactly(f"counters, {case}: {name.replace('_', ' ')}", found[name], value)
                for name, value in zip(FIELDS, expected, strict=True)
            ]
        found = asdict(self._found[ON_DEVICE])
        goals += [
            exactly(f"counters, {ON_DEVICE}: {name.replace('_', ' ')}", found[name], value)
            for name, value in (("misses", 4), ("hits", 12), ("bytes_in", 0))
        ]
        names = ("plan: bytes that stay on the device", "plan: bytes while it runs")
        return [*goals, *map(exactly, names, self._plan, (16_778_240, 8_388_608))]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [case, *(float(asdict(found)[name]) for name in FIELDS)] for case, found in self._found.items()
        ]
        for case, bytes_in in zip(("cold", "warm"), KAAS_BYTES, strict=True):
            rows.append([f"KaaS (published), {case}", None, None, None, None, float(bytes_in), None])
        columns = ["run", *(name.replace("_", " ") for name in FIELDS)]
        return [ResultTable("Counters: four products of 1024 x 1024 on PoCL", columns, rows)]

    def panels(self) -> Sequence[PlotPanel]:
        return ()


def _read(document: Document, blobs: Blobs) -> tuple[KernelGraph, Blobs]:
    graph = read_graph(dumps(document))
    if not isinstance(graph, KernelGraph):
        raise MeasurementError("the graph of products is a model")
    return graph, blobs


def _run_twice(graph: KernelGraph, blobs: Blobs) -> tuple[KernelCounters, KernelCounters]:
    """Run a graph on a fresh device, and once more. The output is compared with NumPy."""
    backend = open_backend("opencl")
    resident = ResidentGraph(graph, backend, DeviceConstants(backend))
    resident.load(blobs.__getitem__)
    x = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype("f4")
    first, second = (resident.run({"x": x.tobytes()}, {}) for _ in range(2))
    expected = x
    for link in range(len(graph.kernels)):
        weight = blobs[graph.buffers[f"w{link}"].sha256]
        expected = expected @ np.frombuffer(weight, "f4").reshape(SIZE, SIZE)
    for result in (first, second):
        if not np.allclose(np.frombuffer(result.outputs["y"], "f4").reshape(SIZE, SIZE), expected, atol=1e-2):
            raise MeasurementError("the products differ from those of NumPy")
    return first.counters, second.counters
