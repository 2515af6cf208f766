"""The command line as a whole: its root, and how a failure is reported."""

import atexit
import gc
import sys
from typing import Annotated

import typer

from aliquot.cli.failures import ErrorFormat, print_error, report
from aliquot.cli.plugins import RootGroup
from aliquot.version import __version__

app = typer.Typer(
    name="aliquot",
    cls=RootGroup,
    help="""Serverless functions on shared GPUs: who runs when, where and next to whom.

    First steps: [bold]aliquot up[/] starts the platform on this machine, without GPU, root or anything else. In another
    terminal, [bold]aliquot deploy examples/matrix/matrix.py[/] deploys functions,
    [bold]aliquot invoke matrix.trace -p size=200[/] calls one, and [bold]aliquot top[/] shows what happens.

    To study scheduling without running anything, begin with [bold]aliquot study[/].""",
    epilog="Exit codes: 0 done, 1 the function or a check failed, 2 wrong input, 3 no platform, 4 key refused, "
    "5 not found, 6 refused, 7 the platform failed.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# For these commands --json takes the name of a file.
_JSON_INTO_A_FILE = {"study", "simulate", "compare", "bench", "workload", "reproduce"}


def _version(wanted: bool) -> None:
    if wanted:
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
    """Run the command line. A user's mistake ends with one clear line, a bug with its traceback."""
    atexit.register(gc.freeze)  # otherwise the interpreter searches all modules for garbage at its end, for 0.1 s
    arguments = sys.argv[1:]
    ErrorFormat.json = "--json" in arguments and arguments[0] not in _JSON_INTO_A_FILE
    try:
        _run()
    except BrokenPipeError:  # the reader has ended, as in `aliquot … | head`
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - `report` raises errors that are not ours again
        sys.exit(report(error))


def _run() -> None:
    if not ErrorFormat.json:
        app(prog_name="aliquot")
        return
    try:
        code = app(prog_name="aliquot", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):  # errors of the command line's parser have one
            raise
        print_error(error.format_message(), 2, "usage")
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
