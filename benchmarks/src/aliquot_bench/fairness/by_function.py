"""Latencies by function, against the baseline's: whether a policy is faster for most functions or at the cost of some.

Jain's index compares service with what a flow was due, whether it could use it or not. This table does not depend on
what is due. It asks for each function whether its calls wait longer than under the baseline.
"""

from collections.abc import Mapping, Sequence

from aliquot.sim.statistics import quantile
from aliquot_bench.fairness.cases import FairnessCase
from aliquot_bench.fairness.measuring import Reports
from aliquot_bench.fairness.ratios import BASELINE, OURS
from aliquot_bench.result import PERCENT, ResultTable

SLOWER = 1.05  # times as long as under the baseline


def by_function_table(figures: Mapping[FairnessCase, Reports]) -> ResultTable:
    """Return how many functions are served faster than by the baseline, by set and devices."""
    rows: list[list[str | float | None]] = []
    for name, shape in dict.fromkeys((case.set_name, case.shape) for case in figures):
        ratios = sorted(
            ratio
            for case, reports in figures.items()
            if (case.set_name, case.shape) == (name, shape)
            for ratio in _ratios(reports)
        )
        faster, slower = (ratio <= 1 for ratio in ratios), (ratio > SLOWER for ratio in ratios)
        quantiles = [quantile(ratios, q) for q in (0.5, 0.9, 1)]
        rows.append([name, shape.name, len(ratios), _percent(list(faster)), _percent(list(slower)), *quantiles])
    columns = ["set", "devices", "functions", "% not slower", "% slower by 5 %", "median", "p90", "largest"]
    return ResultTable(f"Mean latency by function, as multiples of {BASELINE}'s, at all loads", columns, rows)


def _ratios(reports: Reports) -> list[float]:
    """Return the mean latency of each function as a multiple of that under the baseline."""
    base = reports[BASELINE].per_function
    return [
        (group.latency_s.mean or 0) / mean_s
        for name, group in reports[OURS].per_function.items()
        if (mean_s := base[name].latency_s.mean)
    ]


def _percent(values: Sequence[bool]) -> float:
    return PERCENT * sum(values) / len(values) if values else 0.0
