"""A run as it goes on: the lines that a function prints, and the record in the end, as server-sent events."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from aliquot.cli.gateway import Gateway
from aliquot.sdk.calls import action_path, activation_path
from aliquot.sdk.errors import PlatformError
from aliquot.sdk.wire import JSON, Request, to_json

_EVENTS = {"Accept": "text/event-stream"}
_PATIENCE_S = 60.0  # between two signs of life, which come every few seconds


def call_and_follow(
    gateway: Gateway, name: str, payload: Mapping[str, Any], session: str, printed: Callable[[str], None]
) -> dict[str, Any]:
    """The record of a call; `printed` gets each line as it comes."""
    query = {"blocking": "true", **({"session": session} if session else {})}
    headers = {**_EVENTS, "Content-Type": JSON}
    request = Request("POST", action_path(name), query, headers, to_json(payload), patience_s=_PATIENCE_S)
    return _follow(gateway, request, name, printed)


def follow(gateway: Gateway, activation_id: str, printed: Callable[[str], None]) -> dict[str, Any]:
    """The same of a run that somebody began; of one that has ended, the record alone."""
    request = Request("GET", activation_path(activation_id), {}, _EVENTS, patience_s=_PATIENCE_S)
    return _follow(gateway, request, f"activation {activation_id}", printed)


def _follow(gateway: Gateway, request: Request, what: str, printed: Callable[[str], None]) -> dict[str, Any]:
    event, data = "", ""
    for line in gateway.client.lines(request, what):
        field, _, value = line.partition(": ")
        if field == "event":
            event = value
        elif field == "data":
            data += value
        elif not line and event:
            if event == "log":
                printed(json.loads(data))
            elif event == "error":
                raise PlatformError(f"{what}: {json.loads(data)['error']}")
            elif event == "result":
                record: dict[str, Any] = json.loads(data)
                return record
            event, data = "", ""
    raise PlatformError(f"{what}: the platform stopped telling how it goes on")
