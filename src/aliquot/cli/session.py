"""`aliquot session`: sessions of calls that belong together and reuse their sandboxes."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import clock, print_json, show, table, text
from aliquot.cli.values import Param, ParamFile, TakesPairs, read_params
from aliquot.sdk.errors import SdkError
from aliquot.sdk.session import SESSIONS

app = typer.Typer(
    help="Manage sessions. Calls of one session belong together and reuse its sandboxes.", no_args_is_help=True
)

_MAX_LISTED = 200


def complete(incomplete: str) -> list[str]:
    """Complete an id for the shell. Without a platform there are no completions."""
    try:
        return [str(one["sessionId"]) for one in _all(connect(None)) if str(one["sessionId"]).startswith(incomplete)]
    except (SdkError, OSError):
        return []


Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the session.", autocompletion=complete)]


@app.command(cls=TakesPairs)
def create(
    name: Annotated[str, typer.Argument(help="A name for people. It is optional and need not be unique.")] = "",
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    user: Annotated[str, typer.Option(help="The user. Files are predicted from the user's earlier sessions.")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Begin a session and print its id. -p and -P give metadata that is kept with it.

    For example: [bold]S=$(aliquot session create analysis --user ann); aliquot invoke f --session $S[/]
    """
    body = {"name": name, "metadata": read_params(param, param_file), "user": user}
    made = connect(data).send("POST", SESSIONS, "a session", body=body)
    if as_json:
        print_json(made)
    else:
        say(str(made["sessionId"]))


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List the sessions that have not ended, the newest first."""
    found = _all(connect(data))
    if as_json:
        print_json(found)
    elif not found:
        say("there are no sessions; begin one with: aliquot session create")
    else:
        rows = table("", "session", "name", "user", ">calls", "used", "ends if idle until")
        for one in found:
            cells = (str(one["sessionId"]), str(one["name"]), str(one["user"]), text(one["invocations"]))
            rows.add_row(*cells, clock(one["used"]), clock(one["expires"]))
        show(rows)


@app.command("show")
def show_(session_id: Id, data: Data = None, as_json: AsJson = False) -> None:
    """Show a session with its metadata. Its calls are listed by aliquot activation list --session ID."""
    found = connect(data).send("GET", _path(session_id), "show")
    if as_json:
        print_json(found)
        return
    rows = table("", "", "")
    rows.show_header = False
    for key in ("sessionId", "namespace", "name", "user", "invocations"):
        rows.add_row(key, text(found[key]))
    for key in ("created", "used", "expires"):
        rows.add_row(key, clock(found[key]))
    show(rows)
    print_json(found["metadata"])


@app.command()
def end(session_id: Id, data: Data = None, as_json: AsJson = False) -> None:
    """End a session. Its running calls go on."""
    ended = connect(data).send("DELETE", _path(session_id), f"session {session_id}")
    if as_json:
        print_json(ended)
    else:
        say(f"ended {session_id}")


def _all(gateway: GatewayClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        query: dict[str, str | int] = {"limit": _MAX_LISTED, "skip": len(found)}
        page = gateway.send("GET", SESSIONS, "the sessions", query=query)
        found += page
        if len(page) < _MAX_LISTED:
            return found


def _path(session_id: str) -> str:
    return f"{SESSIONS}/{quote(session_id, safe='')}"
