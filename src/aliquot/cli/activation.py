"""`aliquot activation`: the records of calls, and calls that still run."""

from typing import Annotated, Any

import typer

from aliquot.cli import logs as log_lines
from aliquot.cli.console import say
from aliquot.cli.gateway import ACTIONS, AsJson, Data, GatewayClient, annotations_of, completer, connect
from aliquot.cli.invoke import wait_for_record
from aliquot.cli.outcomes import describe_status
from aliquot.cli.recent_calls import MAX_SCANNED, NO_CALLS, read_moment, scan_calls, took_ms
from aliquot.cli.results import clock, print_json, seconds, show, size, table, text
from aliquot.sdk.calls import NAMESPACE, activation_path
from aliquot.sdk.errors import NotFoundError

app = typer.Typer(
    help="Show the records of calls, and cancel calls. `aliquot logs` is the short way.", no_args_is_help=True
)
app.command("logs")(log_lines.logs)

_MAX_LISTED = 200
_BYTES = ("prefetched", "wasted")
Id = Annotated[str, typer.Argument(metavar="[ID]", help="The id of an activation.", show_default="the last one")]
Name = Annotated[str, typer.Argument(help="Only calls of this function.", autocompletion=completer(ACTIONS))]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until the call has ended.")]


@app.command("list")
def list_(
    name: Name = "",
    limit: Annotated[
        int, typer.Option("--limit", "-l", min=1, max=_MAX_LISTED, help="The number of calls to show.")
    ] = 30,
    skip: Annotated[int, typer.Option("--skip", "-s", min=0, help="Leave out this many of the newest calls.")] = 0,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only calls that began at this time or later: 10m (ago), 2026-01-31T12:00, or epoch milliseconds."
        ),
    ] = None,
    upto: Annotated[
        str | None, typer.Option(help="Only calls that began at this time or earlier, given in the same way.")
    ] = None,
    session: Annotated[str, typer.Option(metavar="ID", help="Only calls of this session.")] = "",
    failed: Annotated[
        bool, typer.Option("--failed", help=f"Only calls that failed, of the last {MAX_SCANNED}.")
    ] = False,
    slowest: Annotated[
        bool, typer.Option("--slowest", help=f"The slowest calls first, of the last {MAX_SCANNED}.")
    ] = False,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of calls.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List calls, the newest first.

    For example: [bold]aliquot activation list vision/classify --since 10m[/]
    """
    query: dict[str, str | int] = {"name": name} if name else {}
    query |= {"session": session} if session else {}
    query |= {
        key: read_moment(value, f"--{key}") for key, value in (("since", since), ("upto", upto)) if value is not None
    }
    gateway = connect(data)
    if failed or slowest:
        found: Any = scan_calls(gateway, query, MAX_SCANNED)
        found = [one for one in found if one.get("statusCode")] if failed else found
        found = sorted(found, key=took_ms, reverse=True) if slowest else found
        found = {"activations": len(found)} if count else found[skip : skip + limit]
    else:
        query |= {"count": "true"} if count else {"limit": limit, "skip": skip}
        found = gateway.send("GET", f"{NAMESPACE}/activations", "the activations", query=query)
    if as_json:
        print_json(found)
    elif count:
        say(str(found["activations"]))
    elif not found:
        say("there are no such calls" if failed or query.keys() - {"limit", "skip"} or skip else NO_CALLS)
    else:
        _table(found)


@app.command()
def get(activation_id: Id = "", wait: Wait = False, data: Data = None, as_json: AsJson = False) -> None:
    """Show the record of a call: its time, device, duration, result and output.

    For example: [bold]aliquot activation get --wait[/]
    """
    gateway = connect(data)
    record = _record(gateway, activation_id, wait=wait)
    if as_json:
        print_json(record)
        return
    response = record.get("response", {})
    rows = table("", "", "")
    rows.show_header = False
    rows.columns[1].no_wrap = False
    for key in ("activationId", "name", "version", "cause"):
        if record.get(key):
            rows.add_row(key, text(record[key]))
    rows.add_row("began", clock(record["start"]))
    if record.get("end"):
        rows.add_row("duration", seconds(record.get("duration", 0) / 1000))
    rows.add_row("status", describe_status(record))
    for key, value in annotations_of(record).items():
        if key not in {"limits", "path", "failure"}:
            rows.add_row(key, _annotation(key, value))
    show(rows)
    print_json(response.get("result"))
    for line in record.get("logs", ()):
        say(line)


def _annotation(key: str, value: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    """Format an annotation. Times are in milliseconds, and some sizes in bytes."""
    if key.endswith("Time") and isinstance(value, int | float):
        return seconds(value / 1000)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "\n".join(map(text, value))
    if key == "opened" and isinstance(value, dict):
        return ", ".join(f"{number} {state}" for state, number in value.items())
    return size(value) if key in _BYTES and isinstance(value, int) else text(value)


@app.command()
def result(activation_id: Id = "", wait: Wait = False, data: Data = None, as_json: AsJson = False) -> None:
    """Print the result of a call as JSON. With --json its status and size are printed, too.

    For example: [bold]aliquot activation result --wait[/]
    """
    gateway = connect(data)
    record = _record(gateway, activation_id, wait=wait)
    found = gateway.send("GET", f"{activation_path(record['activationId'])}/result", "the result")
    print_json(found if as_json else found.get("result"))


@app.command()
def cancel(
    activation_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a call that waits or runs.")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """End a call that waits or runs. A call that has ended stays as it is.

    For example: [bold]aliquot activation cancel $(aliquot invoke long --no-wait)[/]
    """
    gateway = connect(data)
    answer = gateway.send("DELETE", activation_path(activation_id), f"activation {activation_id}")
    if as_json:
        print_json(answer)
    else:
        say(f"{activation_id} ends, if it has not ended")


@app.command()
def poll(name: Name = "", data: Data = None, as_json: AsJson = False) -> None:
    """Show calls as they end, with their output, until Ctrl-C. With --json each line is a full record.

    This is the same as [bold]aliquot logs --follow --last 0[/].
    """
    log_lines.logs(name or None, follow=True, last=0, data=data, as_json=as_json)


def _record(gateway: GatewayClient, activation_id: str, *, wait: bool) -> dict[str, Any]:
    if activation_id and wait:
        return wait_for_record(gateway, activation_id)
    return gateway.activation(find_id(gateway, activation_id))


def find_id(gateway: GatewayClient, activation_id: str) -> str:
    """Return the id, or that of the last call if it is empty."""
    if activation_id:
        return activation_id
    last = gateway.send("GET", f"{NAMESPACE}/activations", "the last activation", query={"limit": 1})
    if not last:
        raise NotFoundError("there are no activations yet; aliquot invoke makes one")
    return str(last[0]["activationId"])


def _table(found: list[dict[str, Any]]) -> None:
    rows = table("", "began", "function", "status", "start", ">wait", ">took", "activation", names=[6])
    for one in found:
        said = annotations_of(one)
        rows.add_row(
            clock(one["start"]),
            str(said.get("path", one["name"])).partition("/")[2] or str(one["name"]),
            describe_status(one),
            text(said.get("start", "cold" if "initTime" in said else "")),
            seconds(said["waitTime"] / 1000) if "waitTime" in said else "",
            seconds(one["duration"] / 1000) if "duration" in one else "",
            str(one["activationId"]),
        )
    show(rows)
