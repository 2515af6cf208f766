"""`aliquot invoke`: calls a function once, and follows its output with --follow."""

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from aliquot.cli.console import errors, say
from aliquot.cli.failures import print_error
from aliquot.cli.gateway import ACTIONS, AsJson, Data, FunctionName, GatewayClient, annotations_of, connect
from aliquot.cli.outcomes import describe_failure
from aliquot.cli.recent_calls import took_ms
from aliquot.cli.results import print_json, seconds
from aliquot.cli.values import Param, read_params
from aliquot.sdk.calls import action_path, limit_headers
from aliquot.sdk.events import ACCEPT, EVENTS_TIMEOUT_S, events_request, read_events
from aliquot.sdk.wire import JSON, HttpReply, HttpRequest, to_json

_POLL_S = 0.5


def invoke(
    name: FunctionName,
    param: Param = [],  # noqa: B006 - typer copies it
    json_input: Annotated[
        str | None,
        typer.Option(
            "--json-input",
            "--param-file",
            "-P",
            metavar="FILE",
            help="A file with a JSON object of parameters. - is stdin.",
        ),
    ] = None,
    session: Annotated[
        str, typer.Option(metavar="ID", help="The session that the call belongs to, see aliquot session.")
    ] = "",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the id of the activation and do not wait.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show its output on stderr while it runs.")] = False,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Refuse the call unless it will have ended in this time, such as 80ms."),
    ] = None,
    cost: Annotated[
        float | None, typer.Option(min=0, metavar="COST", help="Refuse the call if it would cost more.")
    ] = None,
    late: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="What follows if a promise is broken: run on, the default, or drop."),
    ] = None,
    prefer: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="The place to prefer within the limits: cost, latency or balanced."),
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Call a function and print its result as JSON. The exit code is 1 if it fails.

    A summary (cold or warm start, waiting time, run time) goes to stderr. With --json the whole record is printed.
    """
    payload = read_params(param, json_input, "--json-input")
    limits = limit_headers(deadline, cost, late, prefer)
    gateway = connect(data)
    if no_wait:
        activation_id = begin(gateway, name, payload, session=session, limits=limits)
        if as_json:
            print_json({"activationId": activation_id})
        else:
            say(activation_id)
        return
    begun_s = time.perf_counter()
    if follow:
        record = _followed(gateway, name, payload, session, limits)
    else:
        record = call(gateway, name, payload, session=session, with_logs=as_json, limits=limits)
    whole_ms = (time.perf_counter() - begun_s) * 1000
    response = record["response"]
    if as_json:
        print_json(record)
    else:
        errors.print(f"[dim]{errors.escape(_summary(record, whole_ms))}[/]", soft_wrap=True, highlight=False)
        if response["success"]:
            print_json(response.get("result"))
    if not response["success"]:
        print_error(
            f"{name}: {describe_failure(record)}; its output: aliquot logs {record['activationId']}", 1, "function"
        )
        raise typer.Exit(1)


def _followed(
    gateway: GatewayClient, name: str, payload: dict[str, Any], session: str, limits: Mapping[str, str]
) -> dict[str, Any]:
    from aliquot.sdk.errors import NotFoundError

    def printed(line: str) -> None:
        errors.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        return call_and_follow(gateway, name, payload, session, printed, limits)
    except NotFoundError as error:
        raise gateway.unknown(ACTIONS, name) from error


def call_and_follow(
    gateway: GatewayClient,
    name: str,
    payload: Mapping[str, Any],
    session: str,
    printed: Callable[[str], None],
    limits: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Call a function and return its record. `printed` gets each line of output as it comes."""
    query = {"blocking": "true", **({"session": session} if session else {})}
    headers = {**ACCEPT, "Content-Type": JSON, **(limits or {})}
    request = HttpRequest("POST", action_path(name), query, headers, to_json(payload), timeout_s=EVENTS_TIMEOUT_S)
    return _follow(gateway, request, name, printed)


def follow(gateway: GatewayClient, activation_id: str, printed: Callable[[str], None]) -> dict[str, Any]:
    """Follow a call that was started before, and return its record."""
    return _follow(gateway, events_request(activation_id), f"activation {activation_id}", printed)


def _follow(gateway: GatewayClient, request: HttpRequest, what: str, printed: Callable[[str], None]) -> dict[str, Any]:
    found: Any = None
    for event, found in read_events(gateway.client.lines(request, what), what):
        if event == "log":
            printed(found)
        elif event == "part":
            print_json(found, compact=True)
    record: dict[str, Any] = found  # the last is the result
    return record


def call(
    gateway: GatewayClient,
    name: str,
    payload: dict[str, Any],
    *,
    session: str = "",
    with_logs: bool = False,
    limits: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Call a function, wait for its end however long it takes, and return its record.

    The reply to the call has the record without logs. A server that stops meanwhile still sends that reply.
    """
    reply = _start(gateway, name, payload, {"blocking": "true"}, session, limits)
    body = reply.json()
    if isinstance(body, dict) and "response" in body and not with_logs:
        return body
    return wait_for_record(gateway, _activation_of(reply, name))


def begin(
    gateway: GatewayClient,
    name: str,
    payload: dict[str, Any],
    *,
    session: str = "",
    limits: Mapping[str, str] | None = None,
) -> str:
    """Start a call, and return its activation id once it is accepted."""
    return _activation_of(_start(gateway, name, payload, {}, session, limits), name)


def _start(
    gateway: GatewayClient,
    name: str,
    payload: dict[str, Any],
    query: dict[str, str | int],
    session: str,
    limits: Mapping[str, str] | None,
) -> HttpReply:
    from aliquot.sdk import answers

    query |= {"session": session} if session else {}
    reply = gateway.reply("POST", action_path(name), query=query, body=payload, headers=limits)
    is_call = answers.ACTIVATION in reply.headers
    if reply.status == 404 and not is_call and not (session and session.encode() in reply.body):  # noqa: PLR2004
        raise gateway.unknown(ACTIONS, name)
    return reply if is_call else answers.check(reply, name)


def _activation_of(reply: HttpReply, name: str) -> str:
    from aliquot.sdk import answers

    return reply.headers.get(answers.ACTIVATION) or str(answers.check(reply, name).json()["activationId"])


def wait_for_record(gateway: GatewayClient, activation_id: str) -> dict[str, Any]:
    """Wait until an activation has ended, and return its record. The platform itself waits for a minute only."""
    from aliquot.sdk import answers
    from aliquot.sdk.calls import activation_path

    while True:
        reply = gateway.reply("GET", activation_path(activation_id))
        if reply.status != 404:  # noqa: PLR2004 - not found: it has not ended
            record: dict[str, Any] = answers.check(reply, f"activation {activation_id}").json()
            return record
        time.sleep(_POLL_S)


def _summary(record: dict[str, Any], whole_ms: float) -> str:
    """Say where the time of a call went, from its send to its receipt, the way to the platform and back included."""
    notes = annotations_of(record)
    start = f"{notes.get('start', 'cold' if 'initTime' in notes else 'warm')} start"
    if notes.get("kind") in {"sequence", "workflow"}:
        start = str(notes["kind"])
    parts = [f"{record['activationId']}: {start}"]
    if notes.get("device"):
        parts.append(f"on {notes['device']}")
    if "gatewayTime" in notes:
        parts.append(f"its request was read in {seconds(notes['gatewayTime'] / 1000)}")
    parts.append(f"waited {seconds(notes.get('waitTime', 0) / 1000)}")
    if "initTime" in notes:
        parts.append(f"started in {seconds(notes['initTime'] / 1000)}")
    ran_ms = notes.get("deviceTime", record.get("duration", 0))
    parts.append(f"ran {seconds(ran_ms / 1000)}")
    if "dataTime" in notes:
        parts.append(f"of it {seconds(notes['dataTime'] / 1000)} for files")
    way_ms = max(0.0, whole_ms - took_ms(record))
    return f"{', '.join(parts)}; {seconds(whole_ms / 1000)} here, of it {seconds(way_ms / 1000)} on the way"
