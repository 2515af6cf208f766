"""The picture of the workflow benchmark: each goal with the measured ratio and the bound."""

from collections.abc import Sequence
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot_bench.result import Goal

MET, MISSED, BOUND = "#0072B2", "#D55E00", "#333333"  # distinguishable without red against green (Okabe and Ito)


def draw_goals(goals: Sequence[Goal], path: Path) -> None:
    """Draw a bar for each goal that was measured, on a logarithmic scale, with a mark at its bound."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    shown = [goal for goal in goals if goal.value is not None][::-1]
    sheet = Figure(figsize=(11, 1.4 + 0.4 * len(shown)), layout="constrained")
    axis = sheet.subplots()
    values = [goal.value or 0 for goal in shown]
    bars = axis.barh([goal.name for goal in shown], values, color=[MET if goal.met else MISSED for goal in shown])
    axis.bar_label(bars, labels=[f"{value:.3g}" for value in values], padding=3, fontsize=8)
    axis.scatter([goal.goal for goal in shown], range(len(shown)), marker="|", s=300, color=BOUND, zorder=3)
    axis.set_xscale("log")
    axis.margins(x=0.2)
    axis.set_title("Workflows: measured ratios, bounds as marks; missed goals orange", loc="left", fontsize=11)
    axis.grid(visible=True, axis="x", alpha=0.25)
    axis.set_axisbelow(True)
    try:
        sheet.savefig(path, dpi=130, metadata={"Software": None} if path.suffix.lower() == ".png" else None)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written: {error}") from error
