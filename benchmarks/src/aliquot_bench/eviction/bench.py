"""Measure every eviction policy at five cache sizes on every trace, with Belady's bound and libcachesim."""

from collections.abc import Callable
from pathlib import Path

from aliquot.core.units import MIB
from aliquot.sim.importers.files import check_files
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.eviction import peer
from aliquot_bench.eviction.cache import HitRates, belady, replay
from aliquot_bench.eviction.traces import FOLDER, SOURCES, BlockTrace, load
from aliquot_bench.result import PERCENT, BenchResult, Goal, ResultTable, at_least, at_most

POLICIES = ("lru", "lfu", "gdsf", "s3fifo", "lecar")
SIZES = (0.01, 0.03, 0.1, 0.2, 0.4)  # parts of all requested bytes
BOUND = "Belady"
EXACT = ("lru", "lfu")  # leave no choice to an implementation, so they must agree exactly
QUICK_REQUESTS = 60_000


class EvictionBench:
    """The benchmark `eviction`."""

    assumed = "recorded requests, a cache without a device, whose size is a part of all requested bytes"
    needs_data = True
    steps = len(SOURCES) * (len(SIZES) + 1)

    def __init__(self, request: BenchRequest) -> None:
        if request.data.is_dir():
            check_files(request.data, [[(f"{FOLDER}/{file}",)] for file, _ in SOURCES.values()])
        self._request = request
        self._rates: dict[str, dict[str, list[HitRates]]] = {}  # by trace and policy, one per size
        self._peer: dict[str, dict[str, list[float]]] = {}
        self._without_peer = ""

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        tables: list[ResultTable] = []
        for name in SOURCES:
            trace = load(name, self._request.data, QUICK_REQUESTS if self._request.quick else None)
            self._measure(trace, on_step)
            tables += self._tables(trace)
        return BenchResult("eviction", self._request.quick, self._goals(), tables, self.assumed)

    def draw(self, path: Path) -> None:
        panels = [
            PlotPanel(
                f"{name}: {what}",
                "cache size, % of all bytes",
                "%",
                [
                    PlotLine(policy, [PERCENT * size for size in SIZES], [PERCENT * rate[index] for rate in rates])
                    for policy, rates in by_policy.items()
                ],
                log_x=True,
            )
            for name, by_policy in self._rates.items()
            for index, what in enumerate(("hits", "hits by bytes"))
        ]
        draw_panels(panels, "Eviction on recorded block references", path, columns=2)

    def _measure(self, trace: BlockTrace, on_step: Callable[[str], None]) -> None:
        found: dict[str, list[HitRates]] = {policy: [] for policy in (*POLICIES, BOUND)}
        sizes = [int(trace.bytes * part) for part in SIZES]
        for part, size in zip(SIZES, sizes, strict=True):
            on_step(f"{trace.name}: {len(trace.requests)} requests, a cache of {part:.0%}")
            for policy in POLICIES:
                found[policy].append(replay(trace.requests, size, policy))
            found[BOUND].append(belady(trace.requests, size))
        self._rates[trace.name] = found
        on_step(f"{trace.name}: libcachesim")
        try:
            self._peer[trace.name] = peer.hit_rates(trace.requests, sizes, lambda _: None)
        except MeasurementError as error:
            self._without_peer = str(error)

    def _tables(self, trace: BlockTrace) -> list[ResultTable]:
        columns = ["policy", *(f"{part:.0%}" for part in SIZES)]
        tables = []
        for index, what in enumerate(("hits", "hits by bytes")):
            rows: list[list[str | float | None]] = [
                [policy, *(PERCENT * rate[index] for rate in rates)]
                for policy, rates in self._rates[trace.name].items()
            ]
            if index == 0:
                rows += [
                    [f"{policy}, libcachesim", *(PERCENT * rate for rate in rates)]
                    for policy, rates in self._peer.get(trace.name, {}).items()
                ]
            title = f"{trace.name}: {what} in %, by cache size ({trace.bytes / MIB:.0f} MiB are asked for in all)"
            tables.append(ResultTable(title, columns, rows))
        return tables

    def _goals(self) -> list[Goal]:
        goals = []
        for name, rates in self._rates.items():
            learned = min(
                PERCENT * (lecar.hits - max(lru.hits, lfu.hits))
                for lecar, lru, lfu in zip(rates["lecar"], rates["lru"], rates["lfu"], strict=True)
            )
            goals.append(
                at_least(f"{name}: lecar against the better of lru and lfu, worst size", learned, -1, "points")
            )
            goals += [self._agreement(name, policy) for policy in EXACT]
            goals.append(self._agreement(name, "s3fifo", 0.5))
            goals.append(self._agreement(name, "gdsf", 0.5))
        return goals

    def _agreement(self, name: str, policy: str, allowed: float = 0) -> Goal:
        known = self._peer.get(name)
        if known is None:
            return at_most(f"{name}: {policy} apart from libcachesim's ({self._without_peer})", None, allowed, "points")
        pairs = zip(self._rates[name][policy], known[policy], strict=True)
        apart = max(PERCENT * abs(ours.hits - theirs) for ours, theirs in pairs)
        return at_most(f"{name}: {policy} apart from libcachesim's", apart, allowed, "points")
