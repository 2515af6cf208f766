"""Alone: calls on the platform beside the same graph in a plain process, and a small graph beside an empty function."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Self

import numpy as np

from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot.testing.client import NamespaceClient, check
from aliquot_bench.environments import MeasurementError, scratch
from aliquot_bench.kernels.graphs import addition, gemm_chain
from aliquot_bench.kernels.part import KernelSizes
from aliquot_bench.kernels.platform import body_of, call, deploy, kernel_server
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_most

SIZE = 512
EMPTY = "def main(args):\n    return {}\n"
MAX_WAITED_PERCENT = 2  # a slice has priority over other work, and a plain process that waits is not comparable
HERE, THERE = "in a process", "on the platform"
FUNCTION, GRAPH = "an empty function", "1024 floats"


class AlonePart:
    """The part `alone`."""

    name = "alone"
    steps = 2

    def __init__(self, sizes: KernelSizes) -> None:
        self._sizes = sizes
        self._ms: dict[str, list[float]] = {HERE: [], THERE: [], FUNCTION: [], GRAPH: []}
        self._waited: list[float] = []  # percentage of each run in the plain process, for its core

    def run(self, on_step: Callable[[str], None]) -> None:
        with kernel_server("--devices", "host:1") as (_, client):
            on_step(f"{self._sizes.pairs} pairs of four products of {SIZE} x {SIZE}")
            self._products(client)
            on_step(f"{self._sizes.short_pairs} pairs of short calls")
            self._short(client)

    def _products(self, client: NamespaceClient) -> None:
        document, blobs = gemm_chain(SIZE)
        deploy(client, "products", document, blobs, share=1)
        body = body_of({"x": np.ones((SIZE, SIZE), "f4")})
        with scratch() as folder, PlainProcess(folder, document, blobs) as plain:
            for _ in range(2):  # the first calls compile and load
                call(client, "products", body)
                plain.run()
            for number in range(self._sizes.pairs):
                for there in (number % 2 == 0, number % 2 == 1):  # alternate which is first
                    if there:
                        self._time(THERE, lambda: call(client, "products", body))
                    else:
                        took_ms, used_ms = plain.run()
                        self._ms[HERE].append(took_ms)
                        self._waited.append(PERCENT * max(0.0, 1 - used_ms / took_ms))

    def _short(self, client: NamespaceClient) -> None:
        deploy(client, "add", addition(), {})
        client.deploy("empty", EMPTY)
        body = body_of({"x": np.ones(1024, "f4")})

        def empty() -> None:
            check(client.post("actions/empty?blocking=true&result=true", json={}))

        for _ in range(10):
            call(client, "add", body)
            empty()
        for number in range(self._sizes.short_pairs):
            for graph in (number % 2 == 0, number % 2 == 1):
                if graph:
                    self._time(GRAPH, lambda: call(client, "add", body))
                else:
                    self._time(FUNCTION, empty)

    def _time(self, what: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        self._ms[what].append(1000 * (time.perf_counter() - began))

    def goals(self) -> Sequence[Goal]:
        over = min(self._ms[THERE]) / min(self._ms[HERE]) - 1  # the calls that other work has disturbed least
        waited = min(self._waited)
        name = f"alone: four products of {SIZE} x {SIZE} over a plain process, least of each"
        if void := waited > MAX_WAITED_PERCENT:
            name += f" (void: the plain process waited {waited:.0f} % of its time for its core)"
        more_ms = median(self._ms[GRAPH]) - median(self._ms[FUNCTION])
        return [
            at_most(name, None if void else PERCENT * over, 5, "%"),
            at_most("alone: a call that adds 1024 floats, over an empty function's", more_ms, 0.3, "ms"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [what, median(found), min(found), max(found), len(found)] for what, found in self._ms.items()
        ]
        title = (
            "Alone: whole calls, made in turn. Products: the same core and one thread, with arrays of 1 MiB each way"
        )
        return [ResultTable(title, ["", "median ms", "least", "most", "calls"], rows)]

    def panels(self) -> Sequence[PlotPanel]:
        lines = [PlotLine(what, range(1, len(self._ms[what]) + 1), self._ms[what]) for what in (HERE, THERE)]
        return [PlotPanel("Four products, call by call", "call", "ms", lines)]


_PROGRAM = """
import json, os, sys, time
core, folder = int(sys.argv[1]), sys.argv[2]
os.sched_setaffinity(0, {core})
os.environ |= {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_CACHE_DIR": folder + "/pocl"}
import numpy as np
from pathlib import Path
from aliquot.kernels.reading import read_graph
from aliquot.sdk.kernels import arrays
from aliquot.sdk.kernels.local import LocalGraph
graph = read_graph(Path(folder, "graph.json").read_bytes())
local = LocalGraph(graph, {one.name: one.read_bytes() for one in Path(folder, "blobs").iterdir()})
x = np.ones(graph.buffers["x"].shape, "f4")
for line in sys.stdin:
    began, used = time.perf_counter(), time.process_time()
    inputs, literals = arrays.bind(graph, {"x": x})
    arrays.to_arrays(graph, local.run(inputs, literals).outputs)
    print(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - used), flush=True)
"""


class PlainProcess:
    """A process on the core of the only virtual device, which runs a graph by the SDK without a platform."""

    def __init__(self, folder: Path, document: dict[str, object], blobs: dict[str, bytes]) -> None:
        (folder / "blobs").mkdir()
        for digest, data in blobs.items():
            (folder / "blobs" / digest).write_bytes(data)
        (folder / "graph.json").write_text(json.dumps(document), encoding="utf-8")
        core = max(os.sched_getaffinity(0))  # the core that the driver uses for a single device
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _PROGRAM, str(core), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def run(self) -> tuple[float, float]:
        """Run the graph once, and return the milliseconds that it took, and those of processor time."""
        assert self._process.stdin is not None  # noqa: S101 - opened above
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise MeasurementError("the plain process ended")
        took_ms, used_ms = map(float, line.split())
        return took_ms, used_ms
