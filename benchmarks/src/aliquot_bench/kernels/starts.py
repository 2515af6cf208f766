"""Starts: one product as a Python function with OpenCL, and as a graph in an executor that lives already."""

import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from aliquot.sim.plots import PlotPanel
from aliquot.testing.client import NamespaceClient, from_pairs, to_pairs
from aliquot_bench.kernels.graphs import GEMM, gemm_chain
from aliquot_bench.kernels.part import KernelSizes
from aliquot_bench.kernels.platform import body_of, call, deploy, kernel_server
from aliquot_bench.result import Goal, ResultTable, at_most

SIZE, WARM_CALLS = 256, 10
PROGRAM = """
import os
os.environ["POCL_CACHE_DIR"] = "/tmp/pocl"
import numpy as np
import pyopencl as cl
n = {size}
source = '''{source}'''
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
kernel = cl.Program(context, source).build().gemm
flags = cl.mem_flags.COPY_HOST_PTR
w = cl.Buffer(context, flags, hostbuf=np.random.default_rng({seed}).random((n, n), np.float32))
size = cl.Buffer(context, flags, hostbuf=np.full(8, n, np.int32))
def main(args):
    x = cl.Buffer(context, flags, hostbuf=np.ones((n, n), np.float32))
    y = np.empty((n, n), np.float32)
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, y.nbytes)
    kernel(queue, (n // 8, n), (16, 16), x, w, out, size)
    cl.enqueue_copy(queue, y, out)
    return {{"sum": float(y.sum())}}
"""
FUNCTION, GRAPH = "function", "graph in a living executor"


class StartsPart:
    """The part `starts`."""

    name = "starts"
    steps = 1

    def __init__(self, sizes: KernelSizes) -> None:
        self._sizes = sizes
        self._cold_ms: dict[str, list[float]] = {FUNCTION: [], GRAPH: []}
        self._warm_ms: dict[str, list[float]] = {FUNCTION: [], GRAPH: []}
        self._billed_ms: dict[str, list[float]] = {FUNCTION: [], GRAPH: []}

    def run(self, on_step: Callable[[str], None]) -> None:
        on_step(f"{self._sizes.starts} cold starts of a product as a function and as a graph")
        body = body_of({"x": np.ones((SIZE, SIZE), "f4")})
        with kernel_server("--devices", "host:1") as (_, client):
            deploy(client, "first", *gemm_chain(SIZE, 1, seed=1000))
            call(client, "first", body)  # the executor lives from here on
            for number in range(self._sizes.starts):
                deploy(client, f"graph-{number}", *gemm_chain(SIZE, 1, seed=number))
                code = PROGRAM.format(size=SIZE, source=GEMM, seed=number)
                annotations = to_pairs({"gpu-share": 0.5, "gpu-memory": "16MiB"})
                client.deploy(f"function-{number}", code, limits={"memory": 512}, annotations=annotations)
                self._measure(client, GRAPH, f"graph-{number}", lambda name: call(client, name, body))
                self._measure(client, FUNCTION, f"function-{number}", lambda name: client.result(name, {}))

    def _measure(self, client: NamespaceClient, kind: str, name: str, work: Callable[[str], object]) -> None:
        times = []
        for _ in range(1 + WARM_CALLS):
            began = time.perf_counter()
            work(name)
            times.append(1000 * (time.perf_counter() - began))
        self._cold_ms[kind].append(times[0])
        self._warm_ms[kind] += times[1:]
        for one in client.get(f"activations?name={name}&limit={WARM_CALLS}&docs=true").json():
            self._billed_ms[kind].append(1000 * from_pairs(one["annotations"])["deviceSeconds"])

    def goals(self) -> Sequence[Goal]:
        ratio = median(self._cold_ms[GRAPH]) / median(self._cold_ms[FUNCTION])
        return [at_most("starts: a second graph in a living executor, of the function's cold call", ratio, 0.333)]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [kind, median(self._cold_ms[kind]), median(self._warm_ms[kind]), median(self._billed_ms[kind])]
            for kind in (FUNCTION, GRAPH)
        ]
        columns = ["", "cold call, ms", "warm call, ms", "billed a call, ms of a device"]
        return [ResultTable(f"Starts: a product of {SIZE} x {SIZE} with PoCL, medians of whole calls", columns, rows)]

    def panels(self) -> Sequence[PlotPanel]:
        return ()
