"""Variants of `fair_resident`: one idea switched off at a time, and other choices between fairness and latency."""

from collections.abc import Mapping

from aliquot.config import PolicySettings
from aliquot_bench.fairness import cases
from aliquot_bench.fairness.cases import LOADS, DeviceShape, FairnessCase
from aliquot_bench.fairness.measuring import Reports
from aliquot_bench.fairness.ratios import (
    OURS,
    geometric,
    goals_met,
    jain_gain,
    mean_latency,
    mean_of,
    mean_ratio,
    p99_latency,
    p99_ratio,
)
from aliquot_bench.result import ResultTable

SWITCHES = ("joint", "true_up", "adaptive", "by_value")
FRONTIER_LOADS = LOADS[1:3]  # loads at which flows wait, but the devices can complete all
# From fair to fast. A throttled flow waits beside idle devices.
FRONTIER: dict[str, dict[str, str]] = {
    "throttle = 1": {"throttle": "1"},
    "throttle = 3": {"throttle": "3"},
    "throttle = 10": {"throttle": "10"},
    "window_steps = 3": {"window_steps": "3"},
    "as shipped": {},
    "window_steps = 48": {"window_steps": "48"},
    "window_steps = 192": {"window_steps": "192"},
}


def variants_of(case: FairnessCase) -> dict[str, PolicySettings]:
    """Return the variants that are measured on a case."""
    variants: dict[str, dict[str, str]] = {}
    if case.shape in cases.QUICK_SHAPES:
        variants |= {f"without {switch}": {switch: "false"} for switch in SWITCHES}
        if case.load in FRONTIER_LOADS:
            variants |= {name: params for name, params in FRONTIER.items() if params}
    return {name: PolicySettings(OURS, params={OURS: params}) for name, params in variants.items()}


def ablation_table(figures: Mapping[FairnessCase, Reports]) -> ResultTable:
    """Return the effect of switching off each idea."""
    rows: list[list[str | float | None]] = []
    for name in (f"without {switch}" for switch in SWITCHES):
        pairs = [(each[name], each[OURS]) for each in figures.values() if name in each]
        means = geometric(mean_latency(off) / mean_latency(on) for off, on in pairs)
        tails = geometric(p99_latency(off) / p99_latency(on) for off, on in pairs)
        rows.append([name, means, tails, mean_of([off.fairness.jain - on.fairness.jain for off, on in pairs])])
    columns = ["", "mean latency, times", "p99, times", "Jain, more"]
    return ResultTable("Ablation: what each idea is worth (1, 2 and 16 devices, geometric mean)", columns, rows)


def frontier_table(figures: Mapping[FairnessCase, Reports]) -> ResultTable:
    """Return what fairness costs: each variant by number of devices, over all sets."""
    rows: list[list[str | float | None]] = []
    for shape in cases.QUICK_SHAPES:
        for variant in FRONTIER:
            name = OURS if variant == "as shipped" else variant
            own = [each for case, each in figures.items() if _in_frontier(case, shape) and name in each]
            if own:
                means, tails = [mean_ratio(each, name) for each in own], [p99_ratio(each, name) for each in own]
                gains = [jain_gain(each, name) for each in own]
                met = sum(all(goals_met(each, name)) for each in own)
                figure = [geometric(means), max(means), geometric(tails), max(tails), mean_of(gains), min(gains)]
                rows.append([shape.name, variant, *figure, f"{met} of {len(own)}"])
    columns = ["devices", "variant", "mean / best", "worst", "p99 / best", "worst", "Jain - mqfq", "worst", "all met"]
    return ResultTable("What fairness costs (loads 0.6 and 0.85, all sets)", columns, rows)


def _in_frontier(case: FairnessCase, shape: DeviceShape) -> bool:
    return case.shape == shape and case.load in FRONTIER_LOADS
