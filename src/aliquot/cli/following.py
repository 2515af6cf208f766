"""A run as it goes on: the lines that a function prints, and the record in the end, as server-sent events."""

from collections.abc import Callable, Mapping
from typing import Any

from aliquot.cli.gateway import GatewayClient
from aliquot.sdk.calls import action_path
from aliquot.sdk.events import ACCEPT, EVENTS_TIMEOUT_S, events_request, read_events
from aliquot.sdk.wire import JSON, HttpRequest, to_json


def call_and_follow(
    gateway: GatewayClient, name: str, payload: Mapping[str, Any], session: str, printed: Callable[[str], None]
) -> dict[str, Any]:
    """The record of a call; `printed` gets each line as it comes."""
    query = {"blocking": "true", **({"session": session} if session else {})}
    headers = {**ACCEPT, "Content-Type": JSON}
    request = HttpRequest("POST", action_path(name), query, headers, to_json(payload), timeout_s=EVENTS_TIMEOUT_S)
    return _follow(gateway, request, name, printed)


def follow(gateway: GatewayClient, activation_id: str, printed: Callable[[str], None]) -> dict[str, Any]:
    """The same of a run that somebody began; of one that has ended, the record alone."""
    return _follow(gateway, events_request(activation_id), f"activation {activation_id}", printed)


def _follow(gateway: GatewayClient, request: HttpRequest, what: str, printed: Callable[[str], None]) -> dict[str, Any]:
    found: Any = None
    for event, found in read_events(gateway.client.lines(request, what), what):
        if event == "log":
            printed(found)
    record: dict[str, Any] = found  # the last is the result
    return record
