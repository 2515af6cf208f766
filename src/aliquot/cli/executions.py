"""Commands for executions of deployed workflows: run, start, list, show, history, follow, stop, redrive, answer."""

import json
import re
from typing import Annotated, Any

import typer

from aliquot.cli.console import errors, say
from aliquot.cli.failures import print_error
from aliquot.cli.gateway import ACTIONS, AsJson, Data, GatewayClient, completer, connect
from aliquot.cli.recent_calls import read_moment
from aliquot.cli.results import clock, print_json, seconds, show, table, text
from aliquot.cli.values import Param, ParamFile, read_params, read_value
from aliquot.core.errors import InputError
from aliquot.sdk.calls import entity_path
from aliquot.sdk.errors import NotFoundError
from aliquot.sdk.workflow.executions import EXECUTIONS, TASKS, follow, is_end, read_history

STATUSES = ("RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
_MAX_LISTED = 200
_EXECUTION_NAME = re.compile(r"[\w.@-]{1,80}")
Name = Annotated[str, typer.Argument(help="The name of a deployed workflow.", autocompletion=completer(ACTIONS))]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of an execution, see aliquot workflow list.")]
ExecutionName = Annotated[
    str, typer.Option("--name", help="A name of the execution. The same name and input start it only once.")
]


def start(
    workflow: Name,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    name: ExecutionName = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Start an execution and print its id. -p and -P give its input.

    For example: [bold]aliquot workflow start vision.caption -p image a.png[/]
    """
    found = _start(connect(data), workflow, read_params(param, param_file), name)
    if as_json:
        print_json({"executionId": found})
    else:
        say(found)


def run(
    workflow: Name,
    param: Param = [],  # noqa: B006 - typer copies it
    param_file: ParamFile = None,
    name: ExecutionName = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show the states on stderr.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Start an execution, show its states as it goes, and print its output as JSON. The exit code is 1 if it fails.

    For example: [bold]aliquot workflow run vision.caption -p image a.png[/]
    """
    gateway = connect(data)
    execution = _start(gateway, workflow, read_params(param, param_file), name)
    for event in follow(gateway.client, execution):
        if not quiet:
            errors.print(_event_line(event), markup=False, highlight=False, soft_wrap=True)
    found = _read(gateway, execution)
    if as_json:
        print_json(found)
    elif found["status"] == "SUCCEEDED":
        print_json(found.get("output"))
    if found["status"] != "SUCCEEDED":
        print_error(f"{workflow}: {_failure(found)}; its steps: aliquot workflow history {execution}", 1, "function")
        raise typer.Exit(1)


def list_executions(
    workflow: Annotated[str, typer.Argument(help="Only executions of this workflow.")] = "",
    status: Annotated[str, typer.Option(help=f"Only executions with this status: {', '.join(STATUSES)}.")] = "",
    since: Annotated[
        str | None, typer.Option(help="Only executions that began since then: 10m (ago) or 2026-01-31T12:00.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=_MAX_LISTED, help="How many to show.")] = 30,
    skip: Annotated[int, typer.Option("--skip", "-s", min=0, help="Leave out this many of the newest.")] = 0,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List executions, the newest first.

    For example: [bold]aliquot workflow list vision.caption --status FAILED --since 1h[/]
    """
    if status and status.upper() not in STATUSES:
        raise InputError(f"--status: '{status}' is not a status; it takes {', '.join(STATUSES)}")
    query: dict[str, str | int] = {"limit": limit, "skip": skip}
    query |= {"workflow": workflow} if workflow else {}
    query |= {"status": status.upper()} if status else {}
    query |= {"since": read_moment(since, "--since")} if since is not None else {}
    found = connect(data).send("GET", EXECUTIONS, "the executions", query=query)
    if as_json:
        print_json(found)
        return
    if not found:
        say("there are no executions; aliquot workflow start NAME begins one")
        return
    rows = table("", "execution", "status", ">took", "began", "workflow, name")
    rows.columns[-1].no_wrap = False
    for one in found:
        took = seconds((one["end"] - one["start"]) / 1000) if one.get("end") else ""
        named = f"{one['workflow']} {one['name']}".strip()
        rows.add_row(one["executionId"], one["status"], took, clock(one["start"]), named)
    show(rows)


def show_execution(execution: Id, data: Data = None, as_json: AsJson = False) -> None:
    """Show an execution: its status, input, output or error, and the states in which it stands."""
    found = _read(connect(data), execution)
    if as_json:
        print_json(found)
        return
    for key in ("executionId", "workflow", "name", "status"):
        if found.get(key):
            say(f"{key}: {found[key]}")
    say(f"start: {clock(found['start'])}")
    if found.get("end"):
        say(f"took: {seconds((found['end'] - found['start']) / 1000)}")
    if found.get("devices"):
        parts = ", ".join(f"{device} {seconds(ran / 1000)}" for device, ran in found["devices"].items())
        say(f"device time: {seconds(found['deviceTime'] / 1000)} ({parts})")
    for state in found.get("states", ()):
        index = f" [{state['index']}]" if "index" in state else ""
        say(f"in {state['state']}{index}: waits for {state['waits']} since {state['since']}")
    say(f"input: {json.dumps(found.get('input'), ensure_ascii=False)}")
    if found["status"] == "SUCCEEDED":
        say(f"output: {json.dumps(found.get('output'), ensure_ascii=False)}")
    elif found["status"] != "RUNNING":
        say(f"error: {_failure(found)}")


def history(execution: Id, data: Data = None, as_json: AsJson = False) -> None:
    """Show the history of an execution: each state that was entered and left, and each task, in AWS's event types."""
    gateway = connect(data)
    events = gateway.client.run(read_history(execution, 0))
    if as_json:
        print_json(events)
        return
    for event in events:
        say(_event_line(event))


def follow_execution(execution: Id, data: Data = None, as_json: AsJson = False) -> None:
    """Show the history of an execution as it grows, until the execution ends. The exit code is 1 if it fails.

    With --json each line is an event.
    """
    gateway = connect(data)
    failed = False
    for event in follow(gateway.client, execution):
        failed = is_end(event) and event["type"] != "ExecutionSucceeded"
        if as_json:
            print_json(event, compact=True)
        else:
            say(_event_line(event))
    raise typer.Exit(1 if failed else 0)


def stop(
    execution: Id,
    error: Annotated[str, typer.Option(help="The error with which the execution ends.")] = "",
    cause: Annotated[str, typer.Option(help="The reason, for people.")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Stop an execution, and end the functions that run in it."""
    gateway = connect(data)
    body = {"error": error, "cause": cause}
    _changed(gateway.send("POST", f"{EXECUTIONS}/{execution}/stop", f"execution {execution}", body=body), as_json)


def redrive(execution: Id, data: Data = None, as_json: AsJson = False) -> None:
    """Take up a failed, stopped or timed-out execution where it ended. Results of its tasks are kept.

    For example: [bold]aliquot workflow list --status FAILED[/], then [bold]aliquot workflow redrive ID[/]
    """
    found = connect(data).send("POST", f"{EXECUTIONS}/{execution}/redrive", f"execution {execution}")
    _changed(found, as_json)


def answer(
    token: Annotated[str, typer.Argument(help="The token that the function of wait_for has passed on.")],
    value: Annotated[str, typer.Argument(metavar="OUTPUT", help="The output. Valid JSON is taken as JSON.")] = "null",
    error: Annotated[str, typer.Option(help="Answer with this error instead.")] = "",
    cause: Annotated[str, typer.Option(help="The reason of the error, for people.")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Answer a task that waits for its token, so that its execution goes on.

    For example: [bold]aliquot workflow answer TOKEN '{"approved": true}'[/]
    """
    body: dict[str, Any] = {"token": token, "error": error, "cause": cause}
    kind = "failure"
    if not error:
        kind, body = "success", {"token": token, "output": read_value(value)}
    connect(data).send("POST", f"{TASKS}/{kind}", "the task of this token", body=body)
    if as_json:
        print_json({})
    else:
        say("answered")


def _start(gateway: GatewayClient, workflow: str, value: dict[str, Any], name: str) -> str:
    if name and not _EXECUTION_NAME.fullmatch(name):
        raise InputError(f"--name: '{name}' is not a name; it takes at most 80 letters, digits, '_', '-', '.' and '@'")
    body = {"input": value, **({"name": name} if name else {})}
    try:
        path = f"{entity_path('workflows', workflow)}/executions"
        return str(gateway.send("POST", path, workflow, body=body)["executionId"])
    except NotFoundError as error:
        raise gateway.unknown(ACTIONS, workflow) from error


def _read(gateway: GatewayClient, execution: str) -> dict[str, Any]:
    found: dict[str, Any] = gateway.send("GET", f"{EXECUTIONS}/{execution}", f"execution {execution}")
    return found


def _changed(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        say(str(found["executionId"]))


def _failure(found: dict[str, Any]) -> str:
    parts = [str(found[key]) for key in ("error", "cause") if found.get(key)]
    return ": ".join(parts) or str(found["status"])


def _event_line(event: dict[str, Any]) -> str:
    """Return an event of a history as a line: its number, time and type, and what it tells."""
    details: dict[str, Any] = next((value for key, value in event.items() if key.endswith("EventDetails")), {})
    told = [str(details[key]) for key in ("name", "resource", "error", "cause", "output") if details.get(key)]
    if "device" in details:
        told.append(f"{details['device']}, waited {details['waitedMs']:g} ms, ran {details['ranMs']:g} ms")
    line = f"{event['id']:>4} {str(event['timestamp'])[11:23]} {event['type']}"
    return f"{line} {': '.join(text(part)[:60] for part in told)}" if told else line
