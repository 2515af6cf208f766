"""`aliquot invoke`: call a function once."""

import json
import time
from typing import Annotated, Any

import typer

from aliquot.cli.console import errors, say
from aliquot.cli.failures import tell
from aliquot.cli.gateway import ACTIONS, AsJson, Data, FunctionName, GatewayClient, annotations_of, connect
from aliquot.cli.results import print_json, seconds
from aliquot.cli.values import Param, read_params

_POLL_S = 0.5


def invoke(
    name: FunctionName,
    param: Param = [],  # noqa: B006 - typer copies it
    json_input: Annotated[
        str | None,
        typer.Option(
            "--json-input", "--param-file", "-P", metavar="FILE", help="A JSON object of parameters; - is stdin."
        ),
    ] = None,
    session: Annotated[
        str, typer.Option(metavar="ID", help="The session that the call belongs to; see aliquot session.")
    ] = "",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the activation's id and do not wait.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show on stderr what it prints, as it prints it.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Call a function and print its result as JSON; the exit code is 1 if it fails.

    What happened (cold or warm, how long it waited and ran) goes to stderr. With --json the whole record is printed.
    """
    payload = read_params(param, json_input, "--json-input")
    gateway = connect(data)
    if no_wait:
        activation_id = begin(gateway, name, payload, wait=False, session=session)
        if as_json:
            print_json({"activationId": activation_id})
        else:
            say(activation_id)
        return
    record = _followed(gateway, name, payload, session) if follow else call(gateway, name, payload, session=session)
    response = record["response"]
    if as_json:
        print_json(record)
    else:
        errors.print(f"[dim]{errors.escape(_story(record))}[/]", soft_wrap=True, highlight=False)
        if response["success"]:
            print_json(response.get("result"))
    if not response["success"]:
        tell(f"{name}: {why(response)}; its output: aliquot logs {record['activationId']}", 1, "function")
        raise typer.Exit(1)


def _followed(gateway: GatewayClient, name: str, payload: dict[str, Any], session: str) -> dict[str, Any]:
    from aliquot.cli.following import call_and_follow
    from aliquot.sdk.errors import NotFoundError

    def printed(line: str) -> None:
        errors.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        return call_and_follow(gateway, name, payload, session, printed)
    except NotFoundError as error:
        raise gateway.unknown(ACTIONS, name) from error


def call(gateway: GatewayClient, name: str, payload: dict[str, Any], *, session: str = "") -> dict[str, Any]:
    """The record of a call that has ended, however long it took."""
    return ended(gateway, begin(gateway, name, payload, wait=True, session=session))


def why(response: dict[str, Any]) -> str:
    """In words, what a record's response says of a failure."""
    result = response.get("result")
    said = result.get("error", result) if isinstance(result, dict) else result
    return f"{response['status']}: {said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)}"


def begin(gateway: GatewayClient, name: str, payload: dict[str, Any], *, wait: bool, session: str = "") -> str:
    """The activation's id: when it has ended if one waits, otherwise when it is accepted."""
    from aliquot.sdk import answers
    from aliquot.sdk.calls import action_path

    query = ({"blocking": "true"} if wait else {}) | ({"session": session} if session else {})
    reply = gateway.reply("POST", action_path(name), query=query, body=payload)
    if activation_id := reply.headers.get(answers.ACTIVATION):
        return activation_id
    if reply.status == 404 and not (session and session.encode() in reply.body):  # noqa: PLR2004 - no such function
        raise gateway.unknown(ACTIONS, name)
    return str(answers.check(reply, name).json()["activationId"])


def ended(gateway: GatewayClient, activation_id: str) -> dict[str, Any]:
    """Of what has ended, or will: the platform lets callers wait for a minute, people may want to wait longer."""
    from aliquot.sdk import answers
    from aliquot.sdk.calls import activation_path

    while True:
        reply = gateway.reply("GET", activation_path(activation_id))
        if reply.status != 404:  # noqa: PLR2004 - not found: it has not ended
            record: dict[str, Any] = answers.check(reply, f"activation {activation_id}").json()
            return record
        time.sleep(_POLL_S)


def _story(record: dict[str, Any]) -> str:
    said = annotations_of(record)
    start = f"{said.get('start', 'cold' if 'initTime' in said else 'warm')} start"
    if said.get("kind") == "sequence":
        start = f"{len(record.get('logs', ()))} calls"
    parts = [f"{record['activationId']}: {start}"]
    if said.get("device"):
        parts.append(f"on {said['device']}")
    parts.append(f"waited {seconds(said.get('waitTime', 0) / 1000)}")
    if "initTime" in said:
        parts.append(f"started in {seconds(said['initTime'] / 1000)}")
    ran_ms = said.get("deviceTime", record.get("duration", 0))
    parts.append(f"ran {seconds(ran_ms / 1000)}")
    if "dataTime" in said:
        parts.append(f"of it {seconds(said['dataTime'] / 1000)} for files")
    return ", ".join(parts)
