"""A run as it goes on: the lines that a function prints, and the record in the end, as server-sent events."""

from collections.abc import Callable, Mapping
from typing import Any

from aliquot.cli.gateway import Gateway
from aliquot.sdk.calls import action_path
from aliquot.sdk.events import ACCEPT, PATIENCE_S, joining, read_events
from aliquot.sdk.wire import JSON, Request, to_json


def call_and_follow(
    gateway: Gateway, name: str, payload: Mapping[str, Any], session: str, printed: Callable[[str], None]
) -> dict[str, Any]:
    """The record of a call; `printed` gets each line as it comes."""
    query = {"blocking": "true", **({"session": session} if session else {})}
    headers = {**ACCEPT, "Content-Type": JSON}
    request = Request("POST", action_path(name), query, headers, to_json(payload), patience_s=PATIENCE_S)
    return _follow(gateway, request, name, printed)


def follow(gateway: Gateway, activation_id: str, printed: Callable[[str], None]) -> dict[str, Any]:
    """The same of a run that somebody began; of one that has ended, the record alone."""
    return _follow(gateway, joining(activation_id), f"activation {activation_id}", printed)


def _follow(gateway: Gateway, request: Request, what: str, printed: Callable[[str], None]) -> dict[str, Any]:
    found: Any = None
    for event, found in read_events(gateway.client.lines(request, what), what):
        if event == "log":
            printed(found)
    record: dict[str, Any] = found  # the last is the result
    return record
