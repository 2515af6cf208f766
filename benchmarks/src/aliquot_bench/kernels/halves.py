"""Halves: a function and a kernel graph with a share of 0.5 each of one device, both busy all the time."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aliquot.sim.plots import PlotPanel
from aliquot.testing.client import NamespaceClient, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.kernels.graphs import worker
from aliquot_bench.kernels.part import KernelSizes
from aliquot_bench.kernels.platform import body_of, call, deploy, kernel_server
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_most

LOOP = """
import time
def main(args):
    end = time.monotonic() + args["seconds"]
    while time.monotonic() < end:
        sum(range(10_000))
    return {}
"""
FUNCTION, GRAPH = "function", "graph"
ROUNDS = 2_000_000  # of a call of the graph, about 0.4 s of a core
MAX_TAKEN_PERCENT = 4  # of the core, by other work; with more the halves are not comparable
EDGE_S = 1.0  # at each end, when not both are busy


class HalvesPart:
    """The part `halves`."""

    name = "halves"
    steps = 1

    def __init__(self, sizes: KernelSizes) -> None:
        self._seconds = sizes.halves_s
        self._shares: dict[str, float] = {}
        self._enforced = True

    def run(self, on_step: Callable[[str], None]) -> None:
        on_step(f"a function and a graph on halves of a device for {self._seconds:.0f} s")
        with kernel_server("--devices", "host:1", "--sharing", "hard") as (server, client):
            client.deploy(FUNCTION, LOOP, limits={"timeout": 300_000}, annotations=to_pairs({"gpu-share": 0.5}))
            deploy(client, GRAPH, *worker(4096, ROUNDS, 1))
            client.result(FUNCTION, {"seconds": 0.1})
            body = body_of({})
            call(client, GRAPH, body)
            with ThreadPoolExecutor(2) as threads:
                whole_s = self._seconds + 2 * EDGE_S
                threads.submit(client.result, FUNCTION, {"seconds": whole_s})
                threads.submit(_repeat, client, body, time.monotonic() + whole_s)
                time.sleep(EDGE_S)
                before, began = _compute_s(server), time.monotonic()
                time.sleep(self._seconds)
                after, ended = _compute_s(server), time.monotonic()
            self._shares = {
                name: PERCENT * (after[name] - before[name]) / (ended - began) for name in (FUNCTION, GRAPH)
            }
            self._enforced = all(one["enforced"] is not False for one in server.operate("GET", "status")["devices"])

    def goals(self) -> Sequence[Goal]:
        whole = sum(self._shares.values())
        void = "" if self._enforced else " (void: shares are not enforced here)"
        if whole < PERCENT - MAX_TAKEN_PERCENT:
            void = f" (void: other work took {PERCENT - whole:.0f} % of the core)"
        apart = abs(self._shares[FUNCTION] - self._shares[GRAPH])
        return [
            at_most(
                f"halves: the parts of the function and of the graph apart{void}", None if void else apart, 2, "points"
            )
        ] + [
            at_most(
                f"halves: the {name}'s part of the device, off 50 %{void}",
                None if void else abs(share - 50),
                2,
                "points",
            )
            for name, share in self._shares.items()
        ]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [[name, share] for name, share in self._shares.items()]
        return [ResultTable("Halves: compute of one virtual device", ["", "% of the device"], rows)]

    def panels(self) -> Sequence[PlotPanel]:
        return ()


def _repeat(client: NamespaceClient, body: bytes, end: float) -> None:
    while time.monotonic() < end:
        call(client, GRAPH, body)


def _compute_s(server: LiveServer) -> dict[str, float]:
    usage: list[dict[str, Any]] = server.operate("GET", "status")["usage"]
    return {name: sum(row["compute_s"] for row in usage if row["function"] == name) for name in (FUNCTION, GRAPH)}
