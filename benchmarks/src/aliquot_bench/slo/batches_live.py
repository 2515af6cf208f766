"""Batches and kept results on a real server, as ratios of one run."""

from collections.abc import Callable, Sequence
from statistics import median

from aliquot.sim.plots import PlotPanel
from aliquot_bench.result import MEASURED, Goal, ResultTable, at_least, at_most
from aliquot_bench.slo.live import call_message, deploy_network, serving_server
from aliquot_bench.slo.open_loop import throughput
from aliquot_bench.slo.part import SloSizes

CALLERS = 32
WIDTH, LAYERS = 64, 5000  # many short steps, as in recurrent networks: a step takes little longer for 16 items
BATCH = 16
CACHE_MS = 600_000


class BatchPart:
    """Compare calls per second with batches and without, and a kept result with a call that runs."""

    name = "live batches"

    def __init__(self, sizes: SloSizes) -> None:
        self._rounds = sizes.live_rounds
        self._seconds = sizes.live_round_s
        self._figures: dict[str, list[float]] = {"single": [], "batched": [], "run": [], "kept": []}
        self.steps = 1

    def run(self, on_step: Callable[[str], None]) -> None:
        on_step("live batches and kept results")
        with serving_server() as (server, client):
            deploy_network(client, "single", WIDTH, LAYERS)
            deploy_network(client, "batched", WIDTH, LAYERS, batch=BATCH)
            deploy_network(client, "run", 256, 4)
            deploy_network(client, "kept", 256, 4, pure=True, cache_ttl_ms=CACHE_MS)
            for name in ("single", "batched"):  # until sandboxes are warm
                throughput(server.url, [call_message(client, name)], CALLERS, self._seconds)
            for _ in range(self._rounds):
                for name, known in self._figures.items():
                    callers = CALLERS if name in {"single", "batched"} else 1
                    known.append(throughput(server.url, [call_message(client, name)], callers, self._seconds))

    def goals(self) -> Sequence[Goal]:
        single, batched, run, kept = (median(self._figures[name]) for name in self._figures)
        return [
            at_least(f"live: batches of {BATCH} against single calls", batched / single, 3, "times"),
            at_most("live: time of a kept result against a warm call", run / kept, 0.7, "times"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        titles = {
            "single": f"a network of {LAYERS} small layers, {CALLERS} callers",
            "batched": f"the same with batches of {BATCH}",
            "run": "a small network, one caller",
            "kept": "the same with its result kept",
        }
        rows: list[list[str | float | None]] = [[titles[name], median(found)] for name, found in self._figures.items()]
        return [ResultTable("Batches and kept results on a real server", ["", "calls/s"], rows, MEASURED)]

    def panels(self) -> Sequence[PlotPanel]:
        return []
