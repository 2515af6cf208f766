"""The figures in which policies are compared within one case."""

from collections.abc import Iterable, Sequence
from math import exp, fsum, log

from aliquot.sim.report import RunReport
from aliquot_bench.fairness.measuring import Reports

OURS = "fair_resident"
BASELINE = "mqfq_sticky"
OTHERS = ("fcfs", "batch", "sjf", "affinity", BASELINE)
RIVALS = tuple(name for name in OTHERS if name != "sjf")  # sjf starves long calls
MAX_MEAN_RATIO, MAX_P99_RATIO = 1.02, 1.05  # the goals for a single setting


def mean_latency(run: RunReport) -> float:
    return run.latency_s.mean or 0


def p99_latency(run: RunReport) -> float:
    return run.latency_s.p99 or 0


def mean_ratio(figures: Reports, name: str = OURS) -> float:
    """Return the mean latency of a run, as a multiple of the best rival's."""
    return mean_latency(figures[name]) / min(mean_latency(figures[rival]) for rival in RIVALS)


def p99_ratio(figures: Reports, name: str = OURS) -> float:
    """Return the 99th percentile of a run, as a multiple of the best rival's."""
    return p99_latency(figures[name]) / min(p99_latency(figures[rival]) for rival in RIVALS)


def jain_gain(figures: Reports, name: str = OURS) -> float:
    """Return by how much Jain's index of a run is above the baseline's."""
    return figures[name].fairness.jain - figures[BASELINE].fairness.jain


def goals_met(figures: Reports, name: str = OURS) -> tuple[bool, bool, bool]:
    """Return whether a run meets the goals of a single setting: for its mean, its p99 and Jain's index."""
    fair = jain_gain(figures, name) >= 0
    return mean_ratio(figures, name) <= MAX_MEAN_RATIO, p99_ratio(figures, name) <= MAX_P99_RATIO, fair


def geometric(ratios: Iterable[float]) -> float:
    """Return the geometric mean, which is 0 if one of the ratios is."""
    listed = list(ratios)
    return exp(fsum(log(ratio) for ratio in listed) / len(listed)) if all(listed) else 0.0


def mean_of(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
