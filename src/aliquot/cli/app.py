"""The commands, put together; and what happens when one fails."""

import sys
from typing import Annotated

import typer

from aliquot import __version__
from aliquot.cli import bench, compare, demo, policies, replay, reproduce, simulate, up, workload
from aliquot.cli.console import errors
from aliquot.core.errors import AliquotError

app = typer.Typer(
    name="aliquot",
    help="""Serverless functions on shared GPUs: who runs when, where and next to whom.

    Begin with [bold]aliquot demo[/], which compares policies on a built-in workload. Then make a workload of your own
    with [bold]aliquot workload make[/] and run it with [bold]aliquot simulate[/].""",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("replay")(replay.replay)
app.command("demo")(demo.demo)
app.command("simulate")(simulate.simulate)
app.command("compare")(compare.compare)
app.command("policies")(policies.policies)
app.command("bench")(bench.bench)
app.add_typer(workload.app, name="workload")
app.add_typer(reproduce.app, name="reproduce")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"aliquot {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """What `aliquot` on the shell runs. Bad input ends with 2 and one clear line; a bug shows its traceback."""
    try:
        app()
    except AliquotError as error:
        errors.print(f"[bold red]error:[/] {errors.escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader has gone, as in `aliquot … | head`
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:  # a disk that is full, a folder that went away
        where = f"{error.filename}: " if error.filename else ""
        errors.print(f"[bold red]error:[/] {errors.escape(where + (error.strerror or str(error)))}", soft_wrap=True)
        sys.exit(2)
