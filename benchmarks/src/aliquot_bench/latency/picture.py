"""The picture of the latency benchmark: bars of latency and throughput for each server."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.core.errors import InputError
from aliquot_bench.latency.figures import OURS, Figure, TargetResult, p50_one_caller, per_second, typical

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinguishable without red against green (Okabe and Ito).
BASELINE, PEER, ALIQUOT = "#999999", "#56B4E9", "#D55E00"


def draw(targets: Sequence[TargetResult], path: Path) -> None:
    """Draw the bars on a logarithmic scale, because the servers differ by a factor of a hundred."""
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
    colours = [ALIQUOT if target.name == OURS else PEER if target.is_peer else BASELINE for target in targets]
    bars = axis.barh([target.name for target in targets], values, color=colours)
    labels = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]  # noqa: PLR2004 - large numbers need no decimals
    axis.bar_label(bars, labels=labels, padding=3, fontsize=8)
    axis.set_xscale("log")
    axis.margins(x=0.25)
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(visible=True, axis="x", alpha=0.25)
    axis.set_axisbelow(True)
