"""The command `aliquot bench`."""

import os
import platform
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from aliquot.assemble import look_up
from aliquot.cli.commands import STUDY
from aliquot.cli.console import check_distinct, check_writable, errors, output, progress, say, write_file
from aliquot.cli.results import count as count_of
from aliquot.core.errors import InputError
from aliquot.version import __version__
from aliquot_bench.environments import cache_folder

# A copy of the names in the table, because importing the table takes a second.
NAMES = (
    "cluster, console, eviction, fairness, forecast, kernels, latency, prediction, prefetch, profile, sdk, sharing,"
    " sim, slo, views or workflow"
)
_RUN_ON_A_SAMPLE = ("fairness",)
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
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="For latency: the other systems to install and measure, comma separated, or none.",
            show_default="all",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Download what is needed without asking.")] = False,
) -> None:
    """Measure the claims of the documents, and report which goals are met and which are not."""
    from aliquot.sim import plots
    from aliquot_bench.base import BenchRequest, InstallsPeers
    from aliquot_bench.benches import BENCHES
    from aliquot_bench.result import goals_table, rich_table

    make = look_up(BENCHES, name, "NAME")
    check_distinct({"--json": json, "--markdown": markdown, "--plot": plot})
    if plot is not None:
        plots.check_plot(plot)
    for option, path in (("--json", json), ("--markdown", markdown), ("--plot", plot)):
        check_writable(path, option)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop all servers, as Ctrl-C does
    if before is not None and name != "latency":
        raise InputError(f"--before: {name} does not compare versions of Aliquot; leave it out, or choose latency")
    with ExitStack() as stack:
        traces = _find_traces(name, data, stack)
        chosen = make(BenchRequest(traces, quick, before, _read_peers(peers)))
        if chosen.needs_data and not traces.is_dir():
            raise InputError(f"--data: there is no folder {traces}; name the folder that has one folder per trace")
        if isinstance(chosen, InstallsPeers):
            _confirm_downloads(chosen.downloads(), yes=yes)
        result = chosen.run(_reporter(name, chosen.steps, stack))
    for rows in result.tables:
        say(result.assumed_by(rows))
        output.print(rich_table(rows))
    say(f"assumed: {result.assumed}")
    output.print(goals_table(result.goals))
    say(f"to cite this: {_citation(name, quick=quick)}")
    if json is not None:
        write_file(json, result.to_json(), "--json")
        say(f"wrote {json}")
    if markdown is not None:
        write_file(markdown, result.to_markdown().encode(), "--markdown")
        say(f"wrote {markdown}")
    if plot is not None:
        chosen.draw(plot)
        say(f"wrote {plot}")


def _citation(name: str, *, quick: bool) -> str:
    """Return what a reader needs to repeat the measurement: version, command, machine and day."""
    command = f"`aliquot bench {name}{' --quick' if quick else ''}`"
    cores = count_of(len(os.sched_getaffinity(0)), "core")
    machine = f"{cores}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    return f"aliquot {__version__}, {command}, {machine}, {datetime.now(UTC).date().isoformat()}"


def _find_traces(name: str, data: Path | None, stack: ExitStack) -> Path:
    """Return the folder of traces. Without one, a benchmark that can runs on a sample that is made for it."""
    if data is not None:
        return data
    found = next((folder for folder in _TRACES if folder.is_dir()), None)
    if found is not None or name not in _RUN_ON_A_SAMPLE:
        return found or _TRACES[0]
    from aliquot.sim.importers.sample import write_sample

    folder = Path(stack.enter_context(TemporaryDirectory(prefix="aliquot-sample-")))
    write_sample(folder)
    say("traces: there is no folder data, so a sample made of random numbers is used. Its figures are no results.")
    say("docs/how-to/traces.md says where the recorded traces come from.")
    return folder


def _read_peers(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text == "none" else tuple(part.strip() for part in text.split(","))


def _confirm_downloads(sizes_mb: dict[str, int], *, yes: bool) -> None:
    """Say what will be downloaded, and ask. Off a terminal nobody can answer, so `--yes` is needed."""
    if not sizes_mb:
        return
    listed = ", ".join(f"{name} ({size_mb} MB)" for name, size_mb in sizes_mb.items())
    total = f"{sum(sizes_mb.values()) / 1000:.1f} GB of disk in {cache_folder()}"
    text = f"other systems are installed to compare with: {listed}; in all {total}"
    if yes:
        say(text)
    elif not sys.stdin.isatty():
        raise InputError(f"--peers: {text}; --yes agrees, --peers none measures Aliquot alone")
    elif not typer.confirm(f"{text}. Go on?", default=True):
        raise typer.Exit(1)


def _reporter(name: str, steps: int, stack: ExitStack) -> Callable[[str], None]:
    """Return what is called before each step: it moves a bar, or writes a line where there is no terminal."""
    if not errors.is_terminal:
        numbers = count(1)

        def tell(what: str) -> None:
            errors.print(f"{name}: {next(numbers)} of {steps}: {what}", markup=False, highlight=False, soft_wrap=True)

        return tell
    bar = stack.enter_context(progress())
    task = bar.add_task(name, total=steps)

    def on_step(what: str) -> None:
        bar.update(task, description=what, advance=1)

    return on_step
