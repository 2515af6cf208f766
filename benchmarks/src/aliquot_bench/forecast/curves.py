"""Curves of cold starts against idle memory: which policies are measured at which settings, and how they compare."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from aliquot.core.units import GIB
from aliquot_bench.forecast.measuring import KeepAliveResult, measure
from aliquot_bench.forecast.workload import MinuteWorkload

HAZARD, HYBRID, FIXED = "hazard", "hybrid_histogram", "fixed_ttl"
EVICTIONS = ("lru", "gdsf")
MINUTES = (5, 10, 15, 20, 30, 60, 120)
RANGES_H = (1, 4)  # of the histogram; the published one has 4
DEVIATIONS = (1, 4, 16)
PRICES = (0.2, 0.1, 0.05, 0.02, 0.01)
HOST_PARTS = (0.2, 0.4, 0.6)  # of the memory of one sandbox of each function
QUICK_MINUTES, QUICK_PRICES = (10, 20, 60), (0.1, 0.05, 0.02)
FEW_MINUTES, FEW_PRICES = (10, 20), (0.05, 0.02)  # on a large sample, if it is to be quick
MAX_QUICK_FUNCTIONS = 500  # larger samples are large
RUNS, QUICK_RUNS, FEW_RUNS = 23, 11, 5  # simulations of a sample

Run = Callable[[MinuteWorkload], KeepAliveResult]


def runs(work: MinuteWorkload, *, quick: bool) -> list[tuple[str, Run]]:
    """Return a description and a function for each simulation of the workload."""
    found: list[tuple[str, Run]] = []

    def add(keepalive: str, setting: str, **params: object) -> None:
        texts = {name: str(value) for name, value in params.items()}
        found.append((f"{keepalive}, {setting}", lambda work: measure(work, keepalive, texts, setting=setting)))

    few = quick and len(work.functions) > MAX_QUICK_FUNCTIONS
    for minutes in FEW_MINUTES if few else QUICK_MINUTES if quick else MINUTES:
        add(FIXED, f"{minutes} min", ttl_s=60 * minutes)
    for hours in RANGES_H[-1:] if few else RANGES_H:
        add(HYBRID, f"{hours} h", bins=60 * hours)
    for price in FEW_PRICES if few else QUICK_PRICES if quick else PRICES:
        add(HAZARD, f"price {price:g}", price=price)
    if few:
        return found
    for deviations in DEVIATIONS[-1:] if quick else DEVIATIONS:
        add("adaptive", f"{deviations} deviations", deviations=deviations)
    for eviction in EVICTIONS:
        parts = HOST_PARTS[1:2] if quick else HOST_PARTS
        found += [(f"none with {eviction}, {part:.0%} of the memory", _bounded(work, eviction, part)) for part in parts]
    return found


def _bounded(work: MinuteWorkload, eviction: str, part: float) -> Run:
    whole = sum(function.memory_bytes for function in work.functions.values())
    setting = f"{part * whole / GIB:.0f} GiB"
    return lambda work: measure(work, "none", {}, setting=setting, eviction=eviction, host_bytes=round(part * whole))


def waited_at(curve: Sequence[KeepAliveResult], idle_gib_h: float) -> float | None:
    """Return how many calls waited on a curve at this idle memory, between two measured points, or None outside."""
    ordered = sorted(curve, key=lambda point: point.idle_gib_h)
    for less, more in pairwise(ordered):
        if less.idle_gib_h <= idle_gib_h <= more.idle_gib_h:
            part = (idle_gib_h - less.idle_gib_h) / ((more.idle_gib_h - less.idle_gib_h) or 1)
            return less.waited + part * (more.waited - less.waited)
    return None


def starts_at(curve: Sequence[KeepAliveResult], idle_gib_h: float) -> float:
    """Return the starts of the point of a curve that is nearest to this idle memory."""
    return min(curve, key=lambda point: abs(point.idle_gib_h - idle_gib_h)).starts
