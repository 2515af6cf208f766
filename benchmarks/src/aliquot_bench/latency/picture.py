"""The picture of the latency benchmark: bars of latency and throughput for each server."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.core.errors import InputError
from aliquot_bench.latency.figures import (
    BEFORE,
    OURS,
    Figure,
    TargetResult,
    extremes,
    p50_one_caller,
    per_second,
    typical,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinguishable without red against green (Okabe and Ito).
BASELINE, PEER, ALIQUOT, EARLIER = "#999999", "#56B4E9", "#D55E00", "#E69F00"
COLOURS = {OURS: ALIQUOT, BEFORE: EARLIER}


def draw(targets: Sequence[TargetResult], path: Path) -> None:
    """Draw the bars on a logarithmic scale, because the servers differ by a factor of a hundred.

    A thin line on a bar goes from the smallest to the largest value of the rounds.
    """
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415 - slow to import

    shown = [target for target in targets if target.is_valid][::-1]
    sheet = Sheet(figsize=(11, 1.4 + 0.36 * len(shown)), layout="constrained")
    sheet.suptitle("A warm no-op over HTTP: baselines grey, Aliquot orange, peers blue", x=0.01, ha="left", fontsize=12)
    left, right = sheet.subplots(1, 2, sharey=True)
    _bars(left, shown, p50_one_caller, "p50 with one caller, ms (less is better)")
    _bars(right, shown, per_second, "requests/s with 32 callers (more is better)")
    try:
        sheet.savefig(path, dpi=130, metadata={"Software": None} if path.suffix.lower() == ".png" else None)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written: {error}") from error


def _bars(axis: "Axes", targets: Sequence[TargetResult], figure: Figure, title: str) -> None:
    values = [typical(target, figure) or 0 for target in targets]
    colours = [COLOURS.get(target.name, PEER if target.is_peer else BASELINE) for target in targets]
    spreads = [extremes(target, figure) for target in targets]
    below = [value - low for value, (low, _) in zip(values, spreads, strict=True)]
    above = [high - value for value, (_, high) in zip(values, spreads, strict=True)]
    names = [target.name for target in targets]
    bars = axis.barh(names, values, color=colours, xerr=(below, above), error_kw={"elinewidth": 1})
    labels = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]  # noqa: PLR2004 - large numbers need no decimals
    axis.bar_label(bars, labels=labels, padding=3, fontsize=8)
    axis.set_xscale("log")
    axis.margins(x=0.25)
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(visible=True, axis="x", alpha=0.25)
    axis.set_axisbelow(True)
