"""The picture of the prediction benchmark: the score of each predictor on each set, and the network's training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.core.errors import InputError
from aliquot.learn.registry import EpochResult
from aliquot.sim.plots import COLOURS
from aliquot_bench.prediction.trial import SetResult
from aliquot_bench.result import PERCENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = ("popular", "markov1", "markov2", "lstm", "blend")


def draw(trials: Sequence[SetResult], curve: Sequence[EpochResult], path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    figure = Figure(figsize=(13, 9), layout="constrained")
    figure.suptitle("The next file, on sessions that were not learned from", x=0.01, ha="left", fontsize=12)
    grid = figure.add_gridspec(3, 1)
    for row, (what, title) in enumerate((("top1", "top-1, %"), ("top5", "top-5, %"))):
        _bars(figure.add_subplot(grid[row]), trials, what, title)
    axis = figure.add_subplot(grid[2])
    rounds = [point.epoch for point in curve]
    axis.plot(rounds, [PERCENT * point.top1 for point in curve], label="top-1", color=COLOURS[0])
    axis.plot(rounds, [PERCENT * point.top5 for point in curve], label="top-5", color=COLOURS[1])
    axis.set_title("lstm on FIFA: held-back sessions after each round, %", loc="left", fontsize=10)
    axis.set_xlabel("round")
    axis.set_xticks(rounds)
    axis.grid(visible=True, alpha=0.25)
    axis.legend(fontsize=8, frameon=False)
    try:
        figure.savefig(path, dpi=120, metadata={"Software": None} if path.suffix.lower() == ".png" else None)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written: {error}") from error


def _bars(axis: "Axes", trials: Sequence[SetResult], what: str, title: str) -> None:
    width = 0.8 / len(_SHOWN)
    for index, name in enumerate(_SHOWN):
        scores = [(number, one.predictors[name].score) for number, one in enumerate(trials) if name in one.predictors]
        xs = [number + (index - (len(_SHOWN) - 1) / 2) * width for number, _ in scores]
        axis.bar(xs, [PERCENT * getattr(found, what) for _, found in scores], width, label=name, color=COLOURS[index])
    axis.set_xticks(range(len(trials)), [one.name for one in trials], fontsize=8)
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(visible=True, axis="y", alpha=0.25)
    axis.legend(fontsize=8, frameon=False, ncols=len(_SHOWN))
