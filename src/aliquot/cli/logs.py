"""`aliquot logs`: shows the output of functions and the results of their calls."""

import re
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from aliquot.cli.console import output, say
from aliquot.cli.gateway import ACTIONS, TRIGGERS, AsJson, Data, GatewayClient, annotations_of, completer, connect
from aliquot.cli.outcomes import describe_failure, describe_status
from aliquot.cli.recent_calls import MAX_SCANNED, NO_CALLS, scan_calls
from aliquot.cli.results import clock, print_json, seconds
from aliquot.clock import now_ms
from aliquot.sdk.calls import NAMESPACE
from aliquot.sdk.errors import NotFoundError, RefusedError
from aliquot.sdk.units import read_ms

_POLL_S = 0.5
# Calls are listed by their start, but appear when they end. Calls that took up to this long are found.
_LOOK_BACK_MS = 15 * 60_000
_MAX_LISTED = 200
# A copy of `MISSING` in live/node/logs.py, which is slow to import. Our own line about the failure follows it.
OPENWHISK_REMARK = "The action did not initialize or run as expected. Log data might be missing."


def logs(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|ID]",
            help="A function or the id of one activation. Without it, all functions.",
            autocompletion=completer(ACTIONS),
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with calls that end from now on, or until the activation ends."),
    ] = False,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, max=_MAX_LISTED, help="The number of calls to show.")
    ] = 10,
    since: Annotated[str | None, typer.Option(help="Only calls that began within this time, such as 10m.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls that failed.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show the output of functions, the oldest call first. With --json each line is a full record.

    For example: [bold]aliquot logs $(aliquot invoke long --no-wait) --follow[/] shows the lines of a run as they come.
    """
    gateway = connect(data)
    if which is not None and re.fullmatch("[0-9a-f]{32}", which):
        _show_activation(gateway, which, follow=follow, as_json=as_json)
        return
    if which is not None:
        check_known(gateway, which)
    found = list(_failed(gateway, which, last, since) if failed else _recent(gateway, which, last, since))
    for record in found:
        _print(record, as_json=as_json)
    if not (found or as_json or follow):
        say("no call failed" if failed else "there are no such calls" if which or since else NO_CALLS)
    if follow:
        for record in _new(gateway, which):
            if not failed or not record.get("response", {}).get("success"):
                _print(record, as_json=as_json)


def _show_activation(gateway: GatewayClient, activation_id: str, *, follow: bool, as_json: bool) -> None:
    from aliquot.cli.invoke import follow as followed

    if not follow:
        _print(gateway.activation(activation_id), as_json=as_json)
        return
    seen: list[str] = []

    def printed(line: str) -> None:
        seen.append(line)
        if not as_json:
            say(f"  {line}")

    record = followed(gateway, activation_id, printed)
    _print(record if as_json or not seen else {**record, "logs": []}, as_json=as_json)


def check_known(gateway: GatewayClient, name: str) -> None:
    """Raise an error if there is no such function or trigger, instead of showing nothing."""
    try:
        gateway.entity(ACTIONS, name)
    except (NotFoundError, RefusedError) as error:
        if name not in [str(one["name"]) for one in gateway.entities(TRIGGERS)]:
            raise gateway.unknown(ACTIONS, name) from error


def _recent(gateway: GatewayClient, name: str | None, last: int, since: str | None) -> list[dict[str, Any]]:
    if last == 0:
        return []
    begin = None if since is None else now_ms() - read_ms(since, "--since")
    return list(reversed(_list(gateway, name, begin, last)))


def _failed(gateway: GatewayClient, name: str | None, last: int, since: str | None) -> Iterator[dict[str, Any]]:
    """Yield the last calls that failed, the oldest first."""
    query: dict[str, str | int] = {} if name is None else {"name": name}
    query |= {} if since is None else {"since": now_ms() - read_ms(since, "--since")}
    failed = [call for call in scan_calls(gateway, query, MAX_SCANNED) if call.get("statusCode")]
    for call in reversed(failed[:last]):
        yield gateway.activation(str(call["activationId"]))


def _new(gateway: GatewayClient, name: str | None) -> Iterator[dict[str, Any]]:
    seen = {record["activationId"]: None for record in _list(gateway, name, now_ms() - _LOOK_BACK_MS, _MAX_LISTED)}
    while True:
        time.sleep(_POLL_S)
        fresh = [
            record
            for record in _list(gateway, name, now_ms() - _LOOK_BACK_MS, _MAX_LISTED)
            if record["activationId"] not in seen
        ]
        yield from sorted(fresh, key=lambda record: int(record.get("end", 0)))
        seen.update((record["activationId"], None) for record in fresh)
        for old in list(seen)[: -10 * _MAX_LISTED]:
            del seen[old]


def _list(gateway: GatewayClient, name: str | None, since_ms: int | None, limit: int) -> list[dict[str, Any]]:
    query: dict[str, str | int] = {"docs": "true", "limit": limit}
    if name is not None:
        query["name"] = name
    if since_ms is not None:
        query["since"] = since_ms
    found: list[dict[str, Any]] = gateway.send("GET", f"{NAMESPACE}/activations", "the activations", query=query)
    return found


def _print(record: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(record, compact=True)
        return
    said = annotations_of(record)
    response = record.get("response", {})
    status = describe_status(record)
    colour = "green" if response.get("success") else "red"
    took = seconds(record.get("duration", 0) / 1000)
    started = said.get("start", "")
    output.print(
        f"[bold]{record['name']}[/] [{colour}]{status}[/] [dim]{clock(record['start'])} {started} {took} "
        f"{record['activationId']}[/]",
        highlight=False,
        soft_wrap=True,
    )
    for line in record.get("logs", ()):
        if not line.endswith(OPENWHISK_REMARK):
            say(f"  {line}")
    if not response.get("success"):
        say(f"  error: {describe_failure(record)}")
