"""`aliquot bench`: measured claims."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from aliquot.assemble import look_up
from aliquot.cli.console import check_distinct, check_writable, output, progress, say, write_file
from aliquot.core.errors import InputError


def bench(
    name: Annotated[
        str, typer.Argument(help="eviction, fairness, latency, prediction, prefetch, sharing, sim or views.")
    ],
    quick: Annotated[bool, typer.Option(help="A smaller run of the same, in minutes.")] = False,
    data: Annotated[Path, typer.Option(help="The folder that holds a folder for each trace.")] = Path("../shared/data"),
    json: Annotated[Path | None, typer.Option(help="Write goals and tables there.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables there, for the documents.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the result there.")] = None,
) -> None:
    """Measure what is claimed, and say what is met and what is not."""
    from aliquot.bench import BENCHES
    from aliquot.bench.result import goals_table, rich_table
    from aliquot.bench.run import Request
    from aliquot.sim import plots

    make = look_up(BENCHES, name, "NAME")
    check_distinct({"--json": json, "--markdown": markdown, "--plot": plot})
    if plot is not None:
        plots.check_plot(plot)
    for option, path in (("--json", json), ("--markdown", markdown), ("--plot", plot)):
        check_writable(path, option)
    if name in {"eviction", "fairness", "prediction"} and not data.is_dir():
        raise InputError(f"--data: there is no folder {data}; it takes the one that holds a folder for each trace")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is stopped, as by Ctrl-C
    chosen = make(Request(data, quick))
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
