"""The command line as a whole: all commands, and how a failure is reported."""

import sys
from typing import Annotated

import typer

from aliquot.cli import (
    action,
    activation,
    api,
    compare,
    dataset,
    deploy,
    doctor,
    functions,
    invoke,
    logs,
    model,
    namespace,
    package,
    policies,
    replay,
    reproduce,
    rule,
    session,
    simulate,
    status,
    study,
    token,
    trigger,
    up,
    usage,
    workload,
    wskprops,
)
from aliquot.cli.failures import ErrorFormat, print_error, report
from aliquot.cli.plugins import PluginGroup
from aliquot.cli.values import TakesPairs
from aliquot.version import __version__

app = typer.Typer(
    name="aliquot",
    cls=PluginGroup,  # packages may add commands, such as aliquot-bench its `bench` and `demo`
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
RUN, DEVELOP, OPENWHISK, OPERATE = "Run", "Develop", "OpenWhisk", "Operate"
STUDY = "Simulate & study"
app.command("up", rich_help_panel=RUN)(up.up)
app.command("doctor", rich_help_panel=RUN)(doctor.doctor)
app.command("deploy", cls=TakesPairs, rich_help_panel=DEVELOP)(deploy.deploy)
app.command("invoke", cls=TakesPairs, rich_help_panel=DEVELOP)(invoke.invoke)
app.add_typer(session.app, name="session", rich_help_panel=DEVELOP)
app.add_typer(dataset.app, name="dataset", rich_help_panel=DEVELOP)
app.command("logs", rich_help_panel=DEVELOP)(logs.logs)
app.command("list", rich_help_panel=DEVELOP)(functions.list_functions)
app.command("delete", rich_help_panel=DEVELOP)(functions.delete)
app.add_typer(action.app, name="action", rich_help_panel=OPENWHISK)
app.add_typer(package.app, name="package", rich_help_panel=OPENWHISK)
app.add_typer(trigger.app, name="trigger", rich_help_panel=OPENWHISK)
app.add_typer(rule.app, name="rule", rich_help_panel=OPENWHISK)
app.add_typer(activation.app, name="activation", rich_help_panel=OPENWHISK)
app.add_typer(api.app, name="api", rich_help_panel=OPENWHISK)
app.command("wskprops", rich_help_panel=OPENWHISK)(wskprops.wskprops)
app.command("status", rich_help_panel=OPERATE)(status.status)
app.command("top", rich_help_panel=OPERATE)(status.top)
app.command("usage", rich_help_panel=OPERATE)(usage.usage)
app.add_typer(model.app, name="model", rich_help_panel=OPERATE)
app.add_typer(namespace.app, name="namespace", rich_help_panel=OPERATE)
app.command("token", rich_help_panel=OPERATE)(token.token)
app.command("replay", rich_help_panel=OPERATE)(replay.replay)
app.command("study", rich_help_panel=STUDY)(study.study)
app.command("simulate", rich_help_panel=STUDY)(simulate.simulate)
app.command("compare", rich_help_panel=STUDY)(compare.compare)
app.command("policies", rich_help_panel=STUDY)(policies.policies)
app.add_typer(workload.app, name="workload", rich_help_panel=STUDY)
app.add_typer(reproduce.app, name="reproduce", rich_help_panel=STUDY)

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
