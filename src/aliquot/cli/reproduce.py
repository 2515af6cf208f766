"""`aliquot reproduce`: published results side by side with ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aliquot.cli.console import check_writable, output, progress, say
from aliquot.tables import FittedTable

if TYPE_CHECKING:
    from aliquot.sim.experiments.thesis import PublishedTrace

app = typer.Typer(help="Reproduce published results, and show them beside ours.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass


@app.command("thesis")
def thesis(
    plot: Annotated[Path, typer.Option(help="Draw the sweeps to this file.")] = Path("thesis.png"),
    seeds: Annotated[
        int, typer.Option(min=1, help="The number of seeds over which each point of the sweeps is averaged.")
    ] = 5,
) -> None:
    """Reproduce chapter 6 of the Kernel-as-a-Service thesis: five schedules, cold starts, five sweeps.

    Exits with code 1 if a schedule or a count differs from the published one.
    """
    from aliquot.sim import plots
    from aliquot.sim.experiments import thesis as experiment

    check_writable(plot, "--plot")
    plots.check_plot(plot)
    say("assumed: as in the thesis, unbounded device memory, D = 1, no interference, times in whole steps")
    agrees = _show_traces()
    agrees &= _show_cold_starts()
    with progress() as bar:
        task = bar.add_task("sweeps", total=experiment.sweep_points() * seeds)
        panels = list(experiment.sweep_panels(range(seeds), lambda: bar.advance(task)))
    plots.draw_panels(panels, "Mean time on queue in the thesis' setting", plot)
    say(f"wrote {plot}")
    if not agrees:
        raise typer.Exit(1)


@app.command("mqfq")
def mqfq(
    plot: Annotated[Path, typer.Option(help="Draw the comparison and the sweeps to this file.")] = Path("mqfq.png"),
    seeds: Annotated[int, typer.Option(min=1, help="The number of seeds to average over.")] = 3,
) -> None:
    """Reproduce the MQFQ-Sticky paper: nine functions at three loads, every policy, sweeps of D, T and alpha."""
    from aliquot.sim import plots
    from aliquot.sim.experiments import mqfq as experiment

    plots.check_plot(plot)
    check_writable(plot, "--plot")
    with progress() as bar:
        task = bar.add_task("simulating", total=experiment.steps(seeds))
        compared = list(experiment.comparisons(range(seeds), lambda: bar.advance(task)))
        sweeps = experiment.sweeps(range(seeds), lambda: bar.advance(task))
    say(
        "assumed: devices of 16 GiB, D = 2, interference 1.28 times for two calls, shared bus, pools of 16 sandboxes, "
        "clustered arrivals, memory sizes chosen by us"
    )
    table = FittedTable(title="Mean latency in s, and how many times mqfq_sticky's it is", title_justify="left")
    table.add_column("policy")
    for one in compared:
        table.add_column(f"load {one.load}\n{one.devices} dev.", justify="right")
    table.add_column("published", justify="right")
    for policy in experiment.POLICIES:
        cells = [f"{one.means_s[policy]:.3g} ({one.ratio(policy):.2f})" for one in compared]
        table.add_row(policy, *cells, experiment.PUBLISHED.get(policy, ""))
    output.print(table)
    for panel in sweeps:
        for line in panel.lines:
            points = ", ".join(f"{x:g}: {y:.3g}" for x, y in zip(line.xs, line.ys, strict=True))
            say(f"{panel.title}; {line.label}: {points}")
    plots.draw_panels([*experiment.panels(compared), *sweeps], "The setting of MQFQ-Sticky", plot)
    say(f"wrote {plot}")


def _show_traces() -> bool:
    from aliquot.sim.experiments.thesis import PUBLISHED, printed_trace

    table = FittedTable(names=2, title="ResNet at 0, 2, 3 and BERT at 1 on two devices", title_justify="left")
    for column in (
        "policy",
        "",
        "schedule (call -> step, device)",
        "total",
        "cold",
        "hits",
        "wait",
        "ResNet",
        "BERT",
        "",
    ):
        table.add_column(
            column, justify="left" if column in {"policy", "", "schedule (call -> step, device)"} else "right"
        )
    agrees = True
    for published in PUBLISHED:
        ours = printed_trace(published.policy)
        same = ours == published
        agrees &= same
        table.add_row(published.policy, "published", *_cells(published), "")
        table.add_row("", "ours", *_cells(ours), "[green]same[/]" if same else "[bold red]differs[/]")
        table.add_section()
    output.print(table)
    return agrees


def _cells(trace: "PublishedTrace") -> list[str]:
    numbers = (trace.total_s, trace.cold, trace.hits, trace.mean_wait_s, trace.resnet_wait_s, trace.bert_wait_s)
    return [trace.schedule, *(f"{number:g}" for number in numbers)]


def _show_cold_starts() -> bool:
    from aliquot.sim.experiments import thesis as experiment

    table = FittedTable(title="Poisson arrivals, 4 devices, 80 % load, 1000 steps: cold starts", title_justify="left")
    for column in ("policy", "published", "ours"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    agrees = True
    for policy, published in experiment.PUBLISHED_COLD_STARTS.items():
        ours = experiment.poisson_run(policy).cold_starts
        agrees &= ours == published
        table.add_row(policy, str(published), str(ours))
    rebalanced = experiment.poisson_run("exclusive", rebalance=True).cold_starts
    table.add_row("exclusive with rebalancing", "-", str(rebalanced))
    output.print(table)
    seer = experiment.poisson_run("srtf_clairvoyant", steps=100).per_function["bert"].wait_s.mean or 0
    low, high = experiment.SRTF_BERT_WAIT_RANGE_S
    agrees &= low <= seer <= high
    output.print(
        f"BERT's mean wait under srtf_clairvoyant over 100 steps: {seer:.1f} "
        f"(published {experiment.PUBLISHED_SRTF_BERT_WAIT_S}; {low} to {high} is expected)\n",
        highlight=False,
    )
    return agrees
