"""`aliquot whatif`: simulates the last calls of a server under other policies."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.text import Text

from aliquot.cli.console import check_distinct, check_writable, output, progress, say, write_file
from aliquot.cli.results import count, seconds, table
from aliquot.config import PolicySettings, parse_policy_params, parse_weights
from aliquot.core.errors import InputError
from aliquot.sdk.server import find_folder
from aliquot.sdk.units import read_ms

if TYPE_CHECKING:
    from aliquot.sim.engine import Scenario
    from aliquot.whatif.reading import RecordedWindow
    from aliquot.whatif.running import ModelError, WhatIfReport, WhatIfResult

WARM_UP_S = 600.0


def whatif(
    last: Annotated[str, typer.Option(help="The time before now whose calls are simulated.")] = "1h",
    policy: Annotated[
        str,
        typer.Option(help="The policies, comma separated: names or FILE.py:CLASS. `aliquot policies` lists them."),
    ] = "fcfs,mqfq_sticky",
    keepalive: Annotated[
        str | None, typer.Option(help="The policy that keeps idle sandboxes.", show_default="that of the server")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="The number of accelerators.", show_default="those of the server")
    ] = None,
    tenant_weight: Annotated[
        list[str] | None, typer.Option(help="The weight of a tenant, such as ann=2. Repeatable.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of a policy, such as mqfq_sticky.T=5. Repeatable.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this JSON file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison to this file (.png, .svg, .pdf).")] = None,
    export: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Write the calls and functions as files for aliquot simulate.", metavar="ARRIVALS FUNCTIONS"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The platform's data folder.",
            show_default="ALIQUOT_DATA, then ~/.aliquot, then that of the only server that runs",
        ),
    ] = None,
) -> None:
    """Tell what other policies would have done with the last calls of a server.

    The calls, their run times and the times of starts come from the journal of the server, which may be running. The
    policy that really ran is simulated, too, so that you see how far the simulation is from what was measured.

    For example: aliquot whatif --last 1h --policy fcfs,mqfq_sticky --plot whatif.png
    """
    from aliquot.sim.output_files import write_arrivals, write_functions
    from aliquot.whatif.reading import read_window
    from aliquot.whatif.scenario import listed_functions, make_scenario

    exported = export or (None, None)
    written = {"--json": json, "--plot": plot, "--export ARRIVALS": exported[0], "--export FUNCTIONS": exported[1]}
    _check_files(written)
    names = _split(policy)
    params = parse_policy_params(set_ or [], "--set")
    weights = parse_weights(tenant_weight or [], "--tenant-weight")
    _check_policies([PolicySettings(name, keepalive, params=params) for name in names], ())
    folder = Path(find_folder(data)).expanduser()
    with progress() as bar:
        task = bar.add_task("reading the journal", total=None)
        window = read_window(
            folder,
            read_ms(last, "--last") / 1000,
            WARM_UP_S,
            time.time(),
            on_steps=lambda number: bar.update(task, completed=number),
        )
        bar.remove_task(task)
    base = window.settings
    merged = {**base.params, **{name: {**base.params.get(name, {}), **values} for name, values in params.items()}}
    kept = base.keepalive if keepalive is None else keepalive
    runs = [replace(base, queueing=name, keepalive=kept, params=merged) for name in names]
    _check_policies(runs, params)
    recorded, scenario = make_scenario(window), make_scenario(window, devices=devices, weights=weights)
    _check_tenants(weights, scenario)
    if export is not None:
        write_functions(listed_functions(recorded), export[1])
        write_arrivals(recorded.workload, export[0])
    done = _run(window, recorded, scenario, runs)
    if json is not None:
        write_file(json, msgspec.json.format(msgspec.json.encode(done.report)), "--json")
    if plot is not None:
        _draw(done, plot)
    _show(done.report, last)
    for path in written.values():
        if path is not None:
            say(f"wrote {path}")


def _run(
    window: "RecordedWindow", recorded: "Scenario", scenario: "Scenario", runs: Sequence[PolicySettings]
) -> "WhatIfResult":
    from aliquot.whatif.running import run_what_if

    with progress() as bar:
        tasks = {}

        def show(name: str, ended: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=ended)

        return run_what_if(window, recorded, scenario, runs, show)


def _check_files(written: dict[str, Path | None]) -> None:
    from aliquot.sim.plots import check_plot

    check_distinct(written)
    for option, path in written.items():
        check_writable(path, option)
    if (plot := written["--plot"]) is not None:
        check_plot(plot)


def _split(policy: str) -> list[str]:
    names = [name.strip() for name in policy.split(",")]
    if "" in names or len(set(names)) < len(names):
        raise InputError(f"--policy: '{policy}' has an empty or repeated part; it takes a list such as a,b,c")
    return names


def _check_policies(runs: Sequence[PolicySettings], params: Iterable[str]) -> None:
    """Refuse unknown policies, and parameters of a policy that does not run."""
    from aliquot.assemble import assemble
    from aliquot.sim.clairvoyant import SIMULATED_QUEUEING

    used = dict.fromkeys(name for run in runs for name in assemble(run, SIMULATED_QUEUEING).policy_names)
    for name in params:
        if name not in used:
            raise InputError(f"--set: {name} is not among the policies of this run: {', '.join(used)}")


def _check_tenants(weights: dict[str, float], scenario: "Scenario") -> None:
    tenants = {key.tenant for key in scenario.workload.overview().flows}
    for tenant in weights:
        if tenant not in tenants:
            raise InputError(f"--tenant-weight: {tenant} had no calls; there are calls of {', '.join(sorted(tenants))}")


def _show(report: "WhatIfReport", last: str) -> None:
    say(
        f"{count(report.measured.calls, 'call')} in the last {last}; simulating the policy that ran gives "
        f"{_errors(report.error)} compared with what was measured"
    )
    large = report.error.is_large
    rows = table("", "policy", ">mean", ">p50", ">p95", ">p99", ">mean wait", ">cold starts", ">refused")
    for row in (report.measured, *report.simulated):
        latency = row.latency_s
        times = (latency.mean, latency.p50, latency.p95, latency.p99, row.wait_s.mean)
        cells = [row.name, *map(seconds, times), str(row.cold_starts), str(row.refused)]
        dim = "dim" if large and row is not report.measured else ""
        rows.add_row(*(Text(cell, style=dim) for cell in cells))
    output.print(rows)
    if large:
        say("The simulation is more than 20% off, so take the other rows as a rough guess.")
    if report.left_out:
        say(f"Left out: {count(report.left_out, 'call')} that failed or had not ended.")
    if report.dropped:
        say(f"Only the newest calls were used: {report.dropped} older ones were too many.")
    say("Callers that wait for an answer would have made their next calls at other times.")


def _errors(error: "ModelError") -> str:
    named = {"mean": error.mean, "p95": error.p95, "cold starts": error.cold_starts}
    parts = [f"{name} {value:+.0%}" for name, value in named.items() if value is not None]
    return ", ".join(parts) or "no figures to compare"


def _draw(done: "WhatIfResult", path: Path) -> None:
    """Draw the share of calls that were answered within a time, and the mean latency of each minute."""
    from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels

    answered, over_time = [], []
    for name, calls in done.calls.items():
        ordered = sorted(call.latency_s for call in calls)
        stride = max(1, len(ordered) // 2000)
        shares = [place / len(ordered) for place in range(1, len(ordered) + 1, stride)]
        answered.append(PlotLine(name, ordered[::stride], shares))
        minutes: dict[int, list[float]] = {}
        for call in calls:
            minutes.setdefault(int(call.ended_s // 60), []).append(call.latency_s)
        means = [sum(values) / len(values) for _, values in sorted(minutes.items())]
        over_time.append(PlotLine(name, sorted(minutes), means))
    panels = [
        PlotPanel("Share of calls answered within", "s", "", answered, log_x=True),
        PlotPanel("Mean latency by minute", "minutes", "s", over_time, legend_outside=True),
    ]
    draw_panels(panels, "The same calls under other policies", path, columns=1)
