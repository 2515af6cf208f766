"""Isolation: check that each loop gets the share that it requested, when all want the whole device."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import fmean, median, pstdev

from msgspec import Struct

from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_most
from aliquot_bench.sharing.part import SharingSizes
from aliquot_bench.sharing.platform import SharingPlatform, host_device
from aliquot_bench.sharing.windows import (
    PER_SECOND,
    WindowCounts,
    common_windows,
    deviations,
    mean_shares,
    read_counts,
    window_shares,
)

Setting = tuple[float, ...]  # the requested shares

MODES = {"elastic": "weights", "hard": "quotas"}
ALONE: Setting = (1.0,)
SETTINGS: tuple[Setting, ...] = ((0.5,) * 2, (0.25,) * 4, (0.125,) * 8, (0.3, 0.7), (0.1, 0.9))
MAX_ERROR = {"elastic": 1, "hard": 2}
# Published mean shares and their variation over time: 30/70 of HAMi-core, the rest of KNIX, section 7.3.
PUBLISHED: dict[Setting, tuple[str, str]] = {
    SETTINGS[0]: ("49.99, 49.42", "20-30 %"),
    SETTINGS[1]: ("25.22, 24.63, 24.51, 24.54", "20-30 %"),
    SETTINGS[2]: ("12.4 each, deviation of the means < 0.13", "20-30 %"),
    SETTINGS[3]: ("46, 54 (HAMi-core)", ""),
}


class ShareSample(Struct, frozen=True):
    """One repetition: the mean shares, and their deviations over the windows."""

    means: list[float]
    deviations: list[float]
    per_second: float  # iterations of all loops


def sample(tallies: Sequence[WindowCounts]) -> ShareSample:
    """Compute the sample of one repetition."""
    windows = common_windows(tallies)
    turns = sum(each.at(window) for each in tallies for window in windows)
    moments = deviations(window_shares(tallies, windows))
    return ShareSample(mean_shares(tallies, windows), moments, turns * PER_SECOND / max(1, len(windows)))


class ShareFigures(Struct, frozen=True):
    """The figures of one setting over its repetitions, in points."""

    means: list[float]
    error: float  # error of the mean share, largest of all loops
    deviation_of_means: float  # deviation of the mean shares from the requested ones, over the loops
    deviation_over_repetitions: float  # deviation of a mean share over the repetitions, largest of all loops
    deviation_over_windows: float  # deviation over windows, median of the repetitions, largest of all loops


def figures(requested: Setting, samples: Sequence[ShareSample]) -> ShareFigures:
    """Compute the figures of a setting."""
    means = [fmean(values) for values in zip(*(each.means for each in samples), strict=True)]
    off = [mean - PERCENT * share for mean, share in zip(means, requested, strict=True)]
    return ShareFigures(
        means,
        max(map(abs, off)),
        pstdev(off),
        max(pstdev(values) for values in zip(*(each.means for each in samples), strict=True)),
        max(median(values) for values in zip(*(each.deviations for each in samples), strict=True)),
    )


class IsolationPart:
    """The part `isolation`."""

    name = "isolation"
    on_device = True

    def __init__(self, sizes: SharingSizes, settings: Sequence[Setting] = SETTINGS) -> None:
        self._sizes, self._settings = sizes, settings
        self._samples: dict[tuple[str, Setting], list[ShareSample]] = {}
        self._last: dict[tuple[str, Setting], list[WindowCounts]] = {}
        self.steps = sizes.repetitions * len(MODES) * (len(settings) + 1)

    def run(self, on_step: Callable[[str], None]) -> str:
        """Measure all settings on both servers in each repetition, so that disturbances affect all alike."""
        with ExitStack() as stack:
            platforms = {mode: stack.enter_context(host_device(mode)) for mode in MODES}
            for platform in platforms.values():
                for setting in (ALONE, *self._settings):
                    platform.deploy_loops(list(zip(_names(setting), setting, strict=True)))
            for number in range(self._sizes.repetitions):
                for setting in (ALONE, *self._settings):
                    for mode, platform in platforms.items():
                        on_step(f"isolation, repetition {number + 1}: {_shares_text(setting)} by {MODES[mode]}")
                        self._measure(mode, setting, platform)
            return platforms["hard"].unenforced

    def _measure(self, mode: str, setting: Setting, platform: SharingPlatform) -> None:
        calls = [(name, {"seconds": self._sizes.isolation_s}) for name in _names(setting)]
        tallies = [read_counts(result) for result in platform.together(calls)]
        self._samples.setdefault((mode, setting), []).append(sample(tallies))
        self._last[mode, setting] = tallies

    def _figures(self, mode: str) -> dict[Setting, ShareFigures]:
        return {setting: figures(setting, self._samples[mode, setting]) for setting in self._settings}

    def goals(self) -> list[Goal]:
        found = []
        crowd = max((setting for setting in self._settings if len(set(setting)) == 1), key=len)
        for mode, words in MODES.items():
            by_setting = self._figures(mode)
            every, among = by_setting.values(), by_setting[crowd].deviation_of_means
            error, moments = max(each.error for each in every), max(each.deviation_over_windows for each in every)
            over = max(each.deviation_over_repetitions for each in every)
            start = f"isolation by {words}:"
            found += [
                at_most(f"{start} error of a mean share, worst", error, MAX_ERROR[mode], "points"),
                at_most(f"{start} deviation of the means of {len(crowd)} equal ones", among, 0.13, "points"),
                at_most(f"{start} deviation of a mean over repetitions, worst", over, 0.13, "points"),
                at_most(f"{start} deviation over 100 ms, worst slice, median of repetitions", moments, 3, "points"),
            ]
        return found

    def tables(self) -> list[ResultTable]:
        columns = [
            "by",
            "asked for, %",
            "mean shares, %",
            "error",
            "deviation of the means",
            "of a mean over repetitions",
        ]
        columns += ["over 100 ms", "work, % of one alone", "published mean shares", "published, over moments"]
        rows: list[list[str | float | None]] = []
        for mode, words in MODES.items():
            alone = fmean(each.per_second for each in self._samples[mode, ALONE])
            for setting, found in self._figures(mode).items():
                work = PERCENT * fmean(each.per_second for each in self._samples[mode, setting]) / alone
                means = ", ".join(f"{mean:.2f}" for mean in found.means)
                points = (
                    found.error,
                    found.deviation_of_means,
                    found.deviation_over_repetitions,
                    found.deviation_over_windows,
                )
                rows.append([words, _shares_text(setting), means, *points, work, *PUBLISHED.get(setting, ("", ""))])
        title = (
            "Isolation: shares of one device by work done, a matrix loop in each; errors and deviations in points;"
            f" {self._sizes.repetitions} repetitions of {self._sizes.isolation_s:g} s"
        )
        return [ResultTable(title, columns, rows)]

    def panels(self) -> list[PlotPanel]:
        panels = []
        for (mode, setting), tallies in self._last.items():
            if setting != ALONE:
                windows = common_windows(tallies)
                shares = window_shares(tallies, windows)
                lines = [
                    PlotLine(f"{PERCENT * share:g} %", [index / PER_SECOND for index in range(len(values))], values)
                    for share, values in zip(setting, shares, strict=True)
                ]
                panels.append(
                    PlotPanel(f"{_shares_text(setting)} by {MODES[mode]}, windows of 100 ms", "s", "share, %", lines)
                )
        return panels


def _names(setting: Setting) -> list[str]:
    return [f"loop-{'-'.join(f'{share:g}' for share in setting)}-{number}" for number in range(len(setting))]


def _shares_text(setting: Setting) -> str:
    shares = [f"{PERCENT * share:g}" for share in setting]
    return f"{len(shares)} x {shares[0]}" if len(set(shares)) == 1 else "/".join(shares)
