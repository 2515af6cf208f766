"""Run six kinds of functions at once on a real server, read their profiles, and see what the profiler cost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aliquot.core.units import MIB
from aliquot.live.profile.reading import ProfileSummary, read_profiles, summary
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot.testing.server import LiveServer
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import scratch
from aliquot_bench.profile.functions.kinds import KINDS
from aliquot_bench.result import MEASURED, PERCENT, BenchResult, ResultTable, at_most

CODE = Path(__file__).parent / "functions" / "kinds.py"
SECONDS, QUICK_SECONDS = 60, 25
MAX_OVERHEAD = 1  # % of a core


class ProfileBench:
    """The benchmark `profile`."""

    assumed = MEASURED
    needs_data = False
    steps = 2

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick
        self._seconds = QUICK_SECONDS if request.quick else SECONDS
        self._lines: list[PlotLine] = []

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        on_step("a server is started and the functions deployed")
        with scratch() as folder, LiveServer(folder / "data") as server:
            for kind in KINDS:
                server.deploy(kind, CODE.read_text(encoding="utf-8"), limits={"timeout": 600_000})
            on_step(f"six functions run for {self._seconds} s")
            before = server.operate("GET", "status")["profiler"]
            with ThreadPoolExecutor(len(KINDS)) as threads:
                list(threads.map(lambda kind: self._call(server, kind), KINDS))
            after = server.operate("GET", "status")["profiler"]
            server.stop()
            found = read_profiles(folder / "data", 1, None)
        spent_s, elapsed_s = after["spent_s"] - before["spent_s"], after["elapsed_s"] - before["elapsed_s"]
        looks = after["looks"] - before["looks"]
        self._lines = [
            PlotLine(key[1], [float(row.t_s - rows[0].t_s) for row in rows], [row.compute_s for row in rows])
            for key, rows in found.items()
        ]
        goal = at_most(
            "processor time of the profiler, six functions at work", PERCENT * spent_s / elapsed_s, MAX_OVERHEAD, "%"
        )
        rows = [_row(summary(each)) for each in found.values()]
        columns = ["function", "compute, s", "memory, MiB", "read, MiB", "written, MiB", "reads and writes", "faults"]
        cost = ResultTable("Looks", ["looks", "µs each"], [[looks, 1e6 * spent_s / max(1, looks)]])
        return BenchResult("profile", self._quick, [goal], [ResultTable("Profiles", columns, rows), cost], self.assumed)

    def draw(self, path: Path) -> None:
        panel = PlotPanel("compute in each second", "seconds", "s", self._lines)
        draw_panels([panel], "Profiles of six kinds of functions", path)

    def _call(self, server: LiveServer, kind: str) -> None:
        with server.client() as client:
            client.result(kind, {"kind": kind, "seconds": self._seconds})


def _row(one: ProfileSummary) -> list[str | float | None]:
    return [
        one.function, one.compute_s, one.memory_bytes / MIB, one.read_bytes / MIB, one.written_bytes / MIB,
        one.system_calls, one.faults,
    ]  # fmt: skip
