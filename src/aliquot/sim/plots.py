"""Comparison plots. matplotlib is an optional dependency and is imported only when a plot is drawn."""

from collections.abc import Sequence
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aliquot.core.errors import InputError
from aliquot.sim.recorder import RunRecorder
from aliquot.sim.report import RunReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which is distinguishable with colour blindness.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8a8a00", "#000000"]
MAX_UPRIGHT_LABELS = 5  # more labels under an axis are rotated


class PlotLine(NamedTuple):
    """One line of a chart."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False  # in the colour of the line before it


class PlotPanel(NamedTuple):
    """One chart with its lines."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[PlotLine]
    log_x: bool = False
    legend_outside: bool = False


def check_plot(path: Path, option: str = "--plot") -> None:
    """Raise `InputError` if a plot cannot be drawn. Called before a long run."""
    try:
        import matplotlib as mpl  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InputError(
            f"{option}: matplotlib is not installed; install it with pip install 'aliquot[plot]'"
        ) from error
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "aliquot"
    from matplotlib.backend_bases import FigureCanvasBase  # noqa: PLC0415

    formats = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise InputError(f"{option}: {path} has no image suffix; it takes one of {', '.join(formats)}")


def draw_comparison(runs: Sequence[tuple[RunReport, RunRecorder]], title: str, path: Path) -> None:
    """Draw latency distributions, mean latency by tenant or function, cold starts, and fairness over time."""
    figure, axes = new_figure(2, 2, (11.5, 7.5))
    figure.suptitle(plain_text(title), x=0.01, ha="left", fontsize=12)
    labels = _labels([run for run, _ in runs])
    curves = []
    for label, (_, recorder) in zip(labels, runs, strict=True):
        values = sorted(recorder.all_latencies())
        stride = max(1, len(values) // 2000)
        xs = values[::stride]
        curves.append(PlotLine(label, xs, [index * stride / len(values) for index in range(len(xs))]))
    _draw_lines(axes[0][0], PlotPanel("Latency: share of calls answered within", "s", "", curves, log_x=True))
    reports = [run for run, _ in runs]
    _draw_groups(axes[0][1], reports, labels)
    _draw_bars(
        axes[1][0], labels, [100 * _unready(run) for run in reports], "Calls that met a cold start or swap-in, %"
    )
    over_time = [
        PlotLine(f"{label}: {run.fairness.jain:.3f}", *_columns(recorder.fairness_over_time))
        for label, (run, recorder) in zip(labels, runs, strict=True)
    ]
    _draw_lines(
        axes[1][1], PlotPanel("Fairness while flows wait: Jain's index over time, and overall", "s", "", over_time)
    )
    axes[1][1].set_ylim(0, 1.05)
    save_figure(figure, path)


def draw_panels(panels: Sequence[PlotPanel], title: str, path: Path, columns: int = 3) -> None:
    """Draw several line charts on one sheet."""
    rows = -(-len(panels) // columns)
    width = 8.8 if any(panel.legend_outside for panel in panels) else 4.4
    figure, axes = new_figure(rows, columns, (width * columns, 3.4 * rows))
    figure.suptitle(plain_text(title), x=0.01, ha="left", fontsize=12)
    flat = [axis for row in axes for axis in row]
    for axis, panel in zip(flat, panels, strict=False):
        _draw_lines(axis, panel)
    for axis in flat[len(panels) :]:
        axis.set_axis_off()
    save_figure(figure, path)


def new_figure(rows: int, columns: int, size: tuple[float, float]) -> tuple["Figure", list[list["Axes"]]]:
    """Return a figure of this size in inches, with its charts by rows."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in axes]


def broken_at_gaps(xs: Sequence[float], ys: Sequence[float], max_gap: float) -> tuple[list[float], list[float]]:
    """Return a line with a break wherever two neighbours are further apart, so that none is drawn across."""
    broken_xs, broken_ys = list(xs[:1]), list(ys[:1])
    for (before, _), (x, y) in pairwise(zip(xs, ys, strict=True)):
        if x - before > max_gap:
            broken_xs.append(before)
            broken_ys.append(nan)
        broken_xs.append(x)
        broken_ys.append(y)
    return broken_xs, broken_ys


def _draw_lines(axis: "Axes", panel: PlotPanel) -> None:
    colour = -1
    for line in panel.lines:
        colour += not line.dashed
        style = "--" if line.dashed else "-"
        axis.plot(
            line.xs, line.ys, style, label=plain_text(line.label), color=COLOURS[colour % len(COLOURS)], linewidth=1.6
        )
    if panel.log_x:
        axis.set_xscale("log")
    axis.set_title(panel.title, loc="left", fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.grid(visible=True, alpha=0.25)
    if panel.legend_outside:
        axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    else:
        axis.legend(fontsize=8, frameon=False)


def _draw_groups(axis: "Axes", runs: Sequence[RunReport], labels: Sequence[str]) -> None:
    """Draw mean latency by tenant if there are several, else by function."""
    by_tenant = len(runs[0].per_tenant) > 1
    groups = [run.per_tenant if by_tenant else run.per_function for run in runs]
    names = list(groups[0])[:12]
    width = 0.8 / len(runs)
    for index, (label, group) in enumerate(zip(labels, groups, strict=True)):
        xs = [number + (index - (len(runs) - 1) / 2) * width for number in range(len(names))]
        means = [group[name].latency_s.mean or 0 for name in names]
        axis.bar(xs, means, width, label=label, color=COLOURS[index % len(COLOURS)])
    rotation = 0 if len(names) <= MAX_UPRIGHT_LABELS else 45
    axis.set_xticks(range(len(names)), [plain_text(name) for name in names], rotation=rotation, fontsize=8)
    axis.set_title(f"Mean latency by {'tenant' if by_tenant else 'function'}, s", loc="left", fontsize=10)
    axis.set_yscale("log")
    axis.grid(visible=True, axis="y", alpha=0.25)


def _draw_bars(axis: "Axes", labels: Sequence[str], values: Sequence[float], title: str) -> None:
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(labels))]
    bars = axis.bar(range(len(labels)), values, color=colours)
    axis.bar_label(bars, fmt="%.3g", fontsize=8)
    axis.set_xticks(range(len(labels)), labels, rotation=0 if len(labels) <= MAX_UPRIGHT_LABELS else 20, fontsize=8)
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(visible=True, axis="y", alpha=0.25)


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def plain_text(text: str) -> str:
    """Escape dollar signs, which would begin a formula."""
    return text.replace("$", r"\$")


def _unready(run: RunReport) -> float:
    return (run.cold_starts + run.swap_ins) / run.completed if run.completed else 0


def _labels(runs: Sequence[RunReport]) -> list[str]:
    seeds = {run.seed for run in runs}
    return [run.policy if len(seeds) == 1 else f"{run.policy}, seed {run.seed}" for run in runs]


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure to a file."""
    # Leave out version and date, so that the same run gives the same file.
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    try:
        figure.savefig(path, dpi=130, metadata=metadata.get(path.suffix.lower()))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error
