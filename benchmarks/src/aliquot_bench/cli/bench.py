"""The command `aliquot bench`."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from aliquot.assemble import look_up
from aliquot.cli.commands import STUDY
from aliquot.cli.console import check_distinct, check_writable, output, progress, say, write_file
from aliquot.core.errors import InputError

# A copy of the names in the table, because importing the table takes a second.
NAMES = "eviction, fairness, forecast, latency, prediction, prefetch, sdk, sharing, sim, views or workflow"
_TRACES = (Path("data"), Path("../shared/data"))  # the second one is shared by several clones


app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command("bench", rich_help_panel=STUDY)
def bench(
    name: Annotated[str, typer.Argument(help=f"The benchmark: {NAMES}.")],
    quick: Annotated[bool, typer.Option(help="Run a smaller version that takes minutes.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="The folder with one folder per trace.", show_default="data")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write goals and tables to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write goals and tables to this file, as Markdown.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the result into this file.")] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="Measure an earlier version beside this one: its Python interpreter. For `latency` only."),
    ] = None,
) -> None:
    """Measure the claims of the documents, and report which goals are met and which are not."""
    from aliquot.sim import plots
    from aliquot_bench.base import BenchRequest
    from aliquot_bench.benches import BENCHES
    from aliquot_bench.result import goals_table, rich_table

    make = look_up(BENCHES, name, "NAME")
    check_distinct({"--json": json, "--markdown": markdown, "--plot": plot})
    if plot is not None:
        plots.check_plot(plot)
    for option, path in (("--json", json), ("--markdown", markdown), ("--plot", plot)):
        check_writable(path, option)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop all servers, as Ctrl-C does
    traces = data or next((folder for folder in _TRACES if folder.is_dir()), _TRACES[0])
    if before is not None and name != "latency":
        raise InputError(f"--before: {name} does not compare versions of Aliquot; leave it out, or choose latency")
    chosen = make(BenchRequest(traces, quick, before))
    if chosen.needs_data and not traces.is_dir():
        raise InputError(f"--data: there is no folder {traces}; name the folder that has one folder per trace")
    with progress() as bar:
        task = bar.add_task(name, total=chosen.steps)

        def on_step(what: str) -> None:
            bar.update(task, description=what, advance=1)

        result = chosen.run(on_step)
    for rows in result.tables:
        output.print(rich_table(rows))
    output.print(goals_table(result.goals))
    if json is not None:
        write_file(json, result.to_json(), "--json")
        say(f"wrote {json}")
    if markdown is not None:
        write_file(markdown, result.to_markdown().encode(), "--markdown")
        say(f"wrote {markdown}")
    if plot is not None:
        chosen.draw(plot)
        say(f"wrote {plot}")
