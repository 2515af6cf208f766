"""Measure what an open console costs the server, how fast it shows data, and how fast the past is searched."""

import http.client
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from aliquot.core.units import MIB
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot.testing.server import LiveServer
from aliquot_bench.base import BenchRequest
from aliquot_bench.console.journal import IndexFigures, measure_index
from aliquot_bench.console.pages import PageFigures, measure_pages, why_not
from aliquot_bench.console.readers import open_pages, search_times
from aliquot_bench.environments import scratch
from aliquot_bench.result import MEASURED, PERCENT, BenchResult, Goal, ResultTable, at_least, at_most

FLOWS, SANDBOXES, PAGES = 100, 60, 5
_ECHO = "def main(args):\n    return args\n"
_SLOW = "import time\ndef main(args):\n    time.sleep(1)\n    return args\n"
_SCROLLED = 10_000
_QUIET_S = 3.0


class ConsoleBench:
    """The benchmark `console`."""

    assumed = MEASURED
    needs_data = False
    steps = 6

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick
        self._window_s = 8.0 if request.quick else 30.0
        self._rounds = 5 if request.quick else 15
        self._block = 300 if request.quick else 1000
        self._calls = 50_000 if request.quick else 200_000  # of the journal that is indexed
        self._p50: dict[str, list[float]] = {}

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        with scratch() as folder:
            with LiveServer(folder / "data", "--devices", "host:4") as server:
                on_step(f"{FLOWS} functions and {SANDBOXES} sandboxes are started")
                self._fill(server)
                on_step("processor time of the server with no, one and five pages")
                cpu = {pages: self._cpu_share(server, pages) for pages in (0, 1, PAGES)}
                on_step("warm calls with five pages and without, in turns")
                calls = self._warm_calls(server)
                on_step("searches and timelines")
                made = self._more_calls(server)
                searches, timelines = self._questions(server)
                on_step("the page in a browser")
                page = None if why_not() else measure_pages(server, _SCROLLED)
            on_step(f"an index of {self._calls} calls")
            index = measure_index(folder / "index", self._calls)
        return self._result(cpu, calls, searches, timelines, page, index, made)

    def draw(self, path: Path) -> None:
        lines = [
            PlotLine(name, [float(n) for n in range(len(values))], [1000 * value for value in values])
            for name, values in self._p50.items()
        ]
        draw_panels([PlotPanel("p50 of warm calls in each round", "round", "ms", lines)], "An open console", path)

    # --- parts ------------------------------------------------------------------------------------------

    def _fill(self, server: LiveServer) -> None:
        with server.client() as client:
            for number in range(FLOWS):
                client.deploy(f"f{number}", _SLOW if number < SANDBOXES else _ECHO)
            client.deploy("echo", _ECHO)
        with ThreadPoolExecutor(SANDBOXES) as threads:
            list(threads.map(lambda number: _Caller(server, f"f{number}").call(), range(SANDBOXES)))

    def _cpu_share(self, server: LiveServer, pages: int) -> float:
        """Return the part of a processor that the server takes with so many pages open, in percent."""
        with open_pages(server, pages):
            time.sleep(_QUIET_S)
            before_s = _processor_s(server.process.pid)
            time.sleep(self._window_s)
            after_s = _processor_s(server.process.pid)
        return PERCENT * (after_s - before_s) / self._window_s

    def _warm_calls(self, server: LiveServer) -> dict[str, tuple[float, float]]:
        """Return p50 and calls per second of one caller, without pages and with five, in turns."""
        caller = _Caller(server, "echo")
        caller.times(self._block)
        rates: dict[str, list[float]] = {"without": [], "with": []}
        self._p50 = {"without": [], "with": []}
        for _ in range(self._rounds):
            for name, pages in (("without", 0), ("with", PAGES)):
                with open_pages(server, pages):
                    time.sleep(_QUIET_S / 2)
                    times = caller.times(self._block)
                self._p50[name].append(median(times))
                rates[name].append(len(times) / sum(times))
        return {name: (median(self._p50[name]), median(rates[name])) for name in rates}

    def _more_calls(self, server: LiveServer) -> int:
        """Call until there are enough for a long list."""
        done = (2 * self._rounds + 1) * self._block
        missing = max(0, _SCROLLED + 500 - done)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: _Caller(server, "echo").times(missing // 4), range(4)))
        return done + missing

    def _questions(self, server: LiveServer) -> tuple[list[float], list[float]]:
        base = "/api/v1/observe/activations?limit=100"
        searches = search_times(server, [base, f"{base}&name=echo", f"{base}&status=failed", f"{base}&wait=10"])
        with server.client() as client:
            newest = [record["activationId"] for record in client.get("activations?limit=20").json()]
        return searches, search_times(server, [f"/operator/v1/activations/{one}/timeline" for one in newest])

    def _result(
        self,
        cpu: dict[int, float],
        calls: dict[str, tuple[float, float]],
        searches: list[float],
        timelines: list[float],
        page: PageFigures | None,
        index: IndexFigures,
        made: int,
    ) -> BenchResult:
        slower = PERCENT * (calls["with"][0] / calls["without"][0] - 1)
        fewer = PERCENT * (1 - calls["with"][1] / calls["without"][1])
        further = (cpu[PAGES] - cpu[1]) / (PAGES - 1)
        p95 = sorted(timelines)[int(0.95 * (len(timelines) - 1))]
        scale = 200_000 / index.calls
        peak_bytes = index.base_bytes + scale * (index.peak_bytes - index.base_bytes)
        goals = [
            *_page_goals(page),
            at_most("server's processor with no page", cpu[0], 0.1, "% of a core"),
            at_most("more with the first page", cpu[1] - cpu[0], 0.5, "% of a core"),
            at_most("more with each further page", further, 0.1, "% of a core"),
            at_most("warm p50 with five pages, against none", slower, 3, "% slower"),
            at_most("warm calls per second with five pages, against none", fewer, 3, "% fewer"),
            at_most(f"search in {made} calls, the slowest of four", max(searches), 1, "s"),
            at_most("timeline of a call, p95", p95, 0.3, "s"),
            at_most(f"index of 200 000 calls, from {index.calls}", scale * index.read_s, 15, "s"),
            at_most(f"memory of it, from {index.calls}", peak_bytes / MIB, 250, "MiB"),
            at_most(f"search in an index of {index.calls} calls", index.search_s, 1, "s"),
        ]
        rows: list[list[str | float | None]] = [[str(pages), share] for pages, share in cpu.items()]
        turns: list[list[str | float | None]] = [[name, 1000 * p50, rate] for name, (p50, rate) in calls.items()]
        tables = [
            ResultTable("Processor time of the server", ["pages", "% of a core"], rows),
            ResultTable("Warm calls of one caller", ["pages", "p50, ms", "calls/s"], turns),
        ]
        if (reason := why_not()) is not None:
            tables.append(ResultTable("Not measured", ["what", "why"], [["the page in a browser", reason]]))
        return BenchResult("console", self._quick, goals, tables, self.assumed)


def _page_goals(page: PageFigures | None) -> list[Goal]:
    """Return the goals of the page. Without a browser they are not measured, and not met."""
    return [
        at_most("first load", None if page is None else page.load_bytes / 1000, 100, "kB"),
        at_most("requests of the first load, with data and stream", page and page.load_requests, 15),
        at_most("data shown after", page and page.shown_s, 1, "s"),
        at_least("calls scrolled", page and page.scrolled, _SCROLLED),
        at_most("longest frame while scrolling", page and page.longest_frame_ms, 100, "ms"),
        at_most("elements of the page", page and page.nodes, 1500),
    ]


def _processor_s(pid: int) -> float:
    """Return the processor time of a process, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Caller:
    """A client that keeps its connection, and times calls."""

    def __init__(self, server: LiveServer, name: str) -> None:
        address = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
        with server.client() as client:
            self._headers = {"authorization": client.authorization, "content-type": "application/json"}
        self._path = f"/api/v1/namespaces/_/actions/{name}?blocking=true"

    def call(self) -> None:
        self._connection.request("POST", self._path, b"{}", self._headers)
        self._connection.getresponse().read()

    def times(self, count: int) -> list[float]:
        """Return how many seconds each of so many calls took."""
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            self.call()
            taken.append(time.perf_counter() - began)
        return taken
