"""The picture of the prefetch benchmark: the hidden part by lead time, and the loading time by method."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot_bench.prefetch.trial import LeadPoint
from aliquot_bench.result import PERCENT

# Distinguishable without red against green (Okabe and Ito).
GREY, BLUE, ORANGE = "#999999", "#56B4E9", "#D55E00"


def draw(points: Sequence[LeadPoint], bars: Mapping[str, float], path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    sheet = Figure(figsize=(11, 4.2), layout="constrained")
    sheet.suptitle("Files before the function asks, over a link like a NAS's", x=0.01, ha="left", fontsize=12)
    left, right = sheet.subplots(1, 2, width_ratios=(3, 2))
    leads = [point.lead_s for point in points]
    left.plot(leads, [PERCENT * point.ideal for point in points], "--", color=GREY, label="at best: what fits")
    left.plot(leads, [PERCENT * point.hidden for point in points], "o-", color=ORANGE, label="learned prefetch")
    left.axhline(90, color=BLUE, linewidth=1, label="goal, once the lead is the transfer time")
    left.set_title("Loading time hidden, %, by lead time", loc="left", fontsize=10)
    left.set_xlabel("from the session's creation to the call, s")
    left.grid(visible=True, alpha=0.25)
    left.legend(fontsize=8, frameon=False, loc="lower right")
    shown = dict(reversed(list(bars.items())))
    colours = [ORANGE if name.startswith("learned") else GREY for name in shown]
    drawn = right.barh(list(shown), list(shown.values()), color=colours)
    right.bar_label(drawn, fmt="%.3g", padding=3, fontsize=8)
    right.margins(x=0.2)
    right.set_title("Loading time as the function sees it, s", loc="left", fontsize=10)
    right.grid(visible=True, axis="x", alpha=0.25)
    try:
        sheet.savefig(path, dpi=130, metadata={"Software": None} if path.suffix.lower() == ".png" else None)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written: {error}") from error
