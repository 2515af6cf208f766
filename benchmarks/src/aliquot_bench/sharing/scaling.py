"""Scaling: how long the same work takes with smaller and smaller parts of a device."""

from collections.abc import Callable, Sequence
from statistics import correlation, fmean, linear_regression, median

from msgspec import Struct

from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot_bench.result import Goal, ResultTable, at_least
from aliquot_bench.sharing.part import SharingSizes
from aliquot_bench.sharing.platform import SharingPlatform, host_device
from aliquot_bench.sharing.windows import read_counts

COUNTS = (1, 2, 4, 6, 8)
EIGHTHS = 8
SHARE_STEPS = 200  # per device: the resolution of shares
MIN_R2 = 0.99  # from this R² on, the times count as linear
PROBE_S = 0.5


class LinearFit(Struct, frozen=True):
    """A line fitted to the times, and its coefficient of determination."""

    intercept: float
    slope: float
    r2: float


def fit(xs: Sequence[float], ys: Sequence[float]) -> LinearFit:
    """Fit a line by least squares."""
    slope, start = linear_regression(xs, ys)
    return LinearFit(start, slope, correlation(xs, ys) ** 2 if len(set(ys)) > 1 else 0.0)


class ScalingPart:
    """The part `scaling`, with hard limits: equal slices at once, as in KNIX's figure 3, and one slice alone."""

    name = "scaling"
    on_device = True

    def __init__(self, sizes: SharingSizes, counts: Sequence[int] = COUNTS) -> None:
        """Measure these numbers of slices or eighths. They begin with one and end with eight."""
        self._sizes, self._counts = sizes, counts
        self._at_once: dict[int, list[float]] = {count: [] for count in counts}
        self._by_eighths: dict[int, list[float]] = {count: [] for count in counts}
        self.steps = sizes.repetitions * 2 * len(counts)

    def run(self, on_step: Callable[[str], None]) -> str:
        slices = [(_eighths(count), count / EIGHTHS) for count in self._counts]
        slices += [(name, _part(count)) for count in self._counts for name in _equal(count)]
        with host_device("hard") as platform:
            platform.deploy_loops(slices)
            whole = read_counts(platform.call(_eighths(EIGHTHS), {"seconds": PROBE_S})).per_second
            work = {"turns": round(whole * self._sizes.scaling_s)}
            for number in range(self._sizes.repetitions):
                for count in self._counts:
                    on_step(f"scaling, repetition {number + 1}: {count} slices at once")
                    self._at_once[count].append(_mean_s(platform, _equal(count), work))
                    on_step(f"scaling, repetition {number + 1}: {count} eighths")
                    self._by_eighths[count].append(_mean_s(platform, [_eighths(count)], work))
            return platform.unenforced

    def _fits(self) -> tuple[LinearFit, LinearFit]:
        return (
            fit(self._counts, [median(values) for values in self._at_once.values()]),
            fit([EIGHTHS / count for count in self._counts], [median(values) for values in self._by_eighths.values()]),
        )

    def goals(self) -> list[Goal]:
        at_once, by_eighths = self._fits()
        return [
            at_least("scaling: time against the number of equal slices, R² of a line", at_once.r2, MIN_R2),
            at_least("scaling: time against 1 / share of one slice, R² of a line", by_eighths.r2, MIN_R2),
        ]

    def tables(self) -> list[ResultTable]:
        at_once, by_eighths = self._fits()
        titles = (
            ("equal slices of one device at once, the same work in each, hard limits", at_once, "slices"),
            ("one slice of so many eighths by itself, hard limits", by_eighths, "eighths"),
        )
        tables = []
        for (what, line, unit), seconds in zip(titles, (self._at_once, self._by_eighths), strict=True):
            title = f"Scaling: {what}; a line {line.intercept:.3g} s + {line.slope:.3g} s x, R² = {line.r2:.5f}"
            if unit == "slices":
                title += " (KNIX: linear for many, not for few)"
            whole = median(seconds[1 if unit == "slices" else EIGHTHS])
            rows: list[list[str | float | None]] = [
                [
                    count,
                    median(values),
                    median(values) / whole,
                    (1 / _part(count) if unit == "slices" else EIGHTHS / count),
                ]
                for count, values in seconds.items()
            ]
            tables.append(ResultTable(title, [unit, "median s", "times the whole device's", "in proportion"], rows))
        return tables

    def panels(self) -> list[PlotPanel]:
        at_once, _ = self._fits()
        measured = PlotLine("measured", self._counts, [median(values) for values in self._at_once.values()])
        fitted = [at_once.intercept + at_once.slope * count for count in self._counts]
        line = PlotLine(f"line, R² = {at_once.r2:.4f}", self._counts, fitted)
        return [PlotPanel("Scaling: the same work in equal slices at once", "slices", "s", [measured, line])]


def _part(count: int) -> float:
    """Return the largest share that fits so many times, such as 0.165 for six."""
    return int(SHARE_STEPS / count) / SHARE_STEPS


def _mean_s(platform: SharingPlatform, names: Sequence[str], work: dict[str, int]) -> float:
    tallies = [read_counts(result) for result in platform.together([(name, work) for name in names])]
    return fmean(each.ended - each.began for each in tallies)


def _equal(count: int) -> list[str]:
    return [f"equal-{count}-{number}" for number in range(count)]


def _eighths(count: int) -> str:
    return f"eighths-{count}"
