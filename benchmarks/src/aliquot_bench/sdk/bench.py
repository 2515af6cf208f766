"""Time 500 warm calls in each way, in turn, and compare them with as many bare connections."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from aliquot.sdk.server import ServerAddress
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot.testing.server import LiveServer
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import scratch
from aliquot_bench.result import MEASURED, BenchResult, Goal, ResultTable, at_most
from aliquot_bench.sdk import echo_app
from aliquot_bench.sdk.ways import BARE, GATHER, THREADS, ways

CALLS = 500
ROUNDS, QUICK_ROUNDS = 15, 5
MAX_RATIO = 1.3


class SdkBench:
    """The benchmark `sdk`."""

    assumed = MEASURED
    needs_data = False

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick
        self._rounds = QUICK_ROUNDS if request.quick else ROUNDS
        self.steps = self._rounds + 1
        self._taken_s: dict[str, list[float]] = {}
        self._processor_s: dict[str, list[float]] = {}

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        on_step("a server is started and the function deployed")
        with ExitStack() as stack:
            server = stack.enter_context(LiveServer(stack.enter_context(scratch()) / "data"))
            os.environ.update(ALIQUOT_URL=server.url, ALIQUOT_KEY=server.key)
            echo_app.echo.remote(0)
            chosen = ways(ServerAddress(server.url, server.key), CALLS)
            for number in range(self._rounds):
                on_step(f"round {number + 1}")
                for name, way in chosen.items():
                    self._measure(name, way)
        return BenchResult("sdk", self._quick, self._goals(), [self._table()], self.assumed)

    def draw(self, path: Path) -> None:
        rounds = [float(number + 1) for number in range(self._rounds)]
        lines = [PlotLine(name, rounds, taken_s) for name, taken_s in self._taken_s.items()]
        draw_panels([PlotPanel(f"{CALLS} calls", "round", "s", lines)], "Many calls at once by the SDK", path)

    def _measure(self, name: str, way: Callable[[], None]) -> None:
        begun, used = time.perf_counter(), time.process_time()
        way()
        self._taken_s.setdefault(name, []).append(time.perf_counter() - begun)
        self._processor_s.setdefault(name, []).append(time.process_time() - used)

    def _goals(self) -> list[Goal]:
        unit = "times the bare connections"
        return [at_most(f"{CALLS} calls by {name}", self._ratio(name), MAX_RATIO, unit) for name in (GATHER, THREADS)]

    def _ratio(self, name: str) -> float:
        """Return the median of the rounds' ratios. The load of the machine changes between rounds."""
        return median(one / bare for one, bare in zip(self._taken_s[name], self._taken_s[BARE], strict=True))

    def _table(self) -> ResultTable:
        rows: list[list[str | float | None]] = [
            [
                name,
                median(taken_s),
                min(taken_s),
                max(taken_s),
                self._ratio(name),
                median(self._processor_s[name]) / CALLS * 1e6,
            ]
            for name, taken_s in self._taken_s.items()
        ]
        columns = [
            "way",
            "median (s)",
            "least (s)",
            "most (s)",
            "of bare connections",
            "client (µs a call)",
        ]
        return ResultTable(f"{CALLS} warm calls, {self._rounds} rounds in turn", columns, rows)
