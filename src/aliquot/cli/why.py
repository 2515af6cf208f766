"""`aliquot why`: tell where a call was while it was not running, and why."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from aliquot.cli.activation import Id, find_id
from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson, Data, connect
from aliquot.cli.recent_calls import read_moment
from aliquot.cli.results import print_json, seconds, show, table

_BAR_WIDTH = 20
_SHOWN_HOLDERS = 3
_PHASES = {
    "wait": "waited",
    "start": "sandbox started",
    "load": "memory loaded",
    "behind": "waited in a sandbox",
    "run": "ran",
    "restart": "server was down",
}


def why(
    activation_id: Id = "",
    operator: Annotated[
        bool, typer.Option("--operator", help="Ask as the operator: a call of any namespace, with all names.")
    ] = False,
    near: Annotated[
        str | None, typer.Option(help="When the call arrived, such as 10m (ago). Only with --operator.", metavar="TIME")
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Tell why a call waited, why it was cold, and why it ran where it did.

    The journal of the server is replayed around the call, so the causes are those of the scheduler itself. The pieces
    follow each other without a gap. Functions of other namespaces are shown as "others".

    For example: [bold]aliquot why[/] tells about the last call.
    """
    gateway = connect(data)
    wanted = find_id(gateway, activation_id)
    if operator:
        query = {"near": read_moment(near, "--near")} if near is not None else {}
        path = f"/operator/v1/activations/{wanted}/timeline"
        told = gateway.send("GET", path, f"call {wanted}", query=query, operator=True)
    else:
        told = gateway.send("GET", f"/api/v1/observe/activations/{wanted}/timeline", f"call {wanted}")
    if as_json:
        print_json(told)
        return
    whole = told["ended"] - told["arrived"]
    ended = told["end"] + (f": {told['reason']}" if told["reason"] else "")
    say(f"{told['activationId']} of {told['namespace']}/{told['action']}: {seconds(whole)}, {ended}")
    rows = table("", "", ">time", "", "why")
    rows.columns[3].no_wrap = False
    for piece in told["pieces"]:
        took = piece["end"] - piece["start"]
        bar = _bar(piece["start"] - told["arrived"], took, whole)
        rows.add_row(_PHASES.get(piece["phase"], piece["phase"]), seconds(took), bar, "\n".join(_reasons(piece)))
    show(rows)
    for dispatch in told["dispatches"]:
        say(_placed(dispatch))


def _bar(start: float, took: float, whole: float) -> str:
    """Return a line on which the piece is marked where it lies in the call."""
    if whole <= 0:
        return ""
    first = min(int(start / whole * _BAR_WIDTH), _BAR_WIDTH - 1)
    last = min(max(first + 1, round((start + took) / whole * _BAR_WIDTH)), _BAR_WIDTH)
    return "·" * first + "█" * (last - first) + "·" * (_BAR_WIDTH - last)


def _reasons(piece: dict[str, Any]) -> Iterator[str]:
    if piece.get("cause"):
        yield f"{piece['cause']}: {piece['detail']}"
    holders = piece.get("holders", ())
    total = sum(holder["runSeconds"] for holder in holders)
    if total > 0:
        shown = [
            f"{'/'.join(filter(None, (holder['namespace'], holder['action'])))} {holder['runSeconds'] / total:.0%}"
            for holder in holders[:_SHOWN_HOLDERS]
        ]
        yield f"taken by {', '.join(shown)}" + (" and more" if len(holders) > _SHOWN_HOLDERS else "")


def _placed(dispatch: dict[str, Any]) -> str:
    line = f"placed on {', '.join(dispatch['place'])} in sandbox {dispatch['sandbox']}: {dispatch['reason']}"
    cause = dispatch.get("cause")
    if cause is None:
        return f"{line}; {dispatch['start']}"
    before = f", {seconds(dispatch['at'] - cause['at'])} before" if cause.get("at") else ""
    room = f", to make room for {cause['roomFor']}" if cause.get("roomFor") else ""
    return f"{line}\n{dispatch['start'].replace('_', ' ')}, because {cause['reason']}{before}{room}"
