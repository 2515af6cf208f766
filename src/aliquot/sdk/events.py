"""A run as it goes on, from the platform's stream of events: the lines that it prints, and its record in the end."""

from collections.abc import Iterable, Iterator
from typing import Any

from aliquot.sdk.calls import activation_path
from aliquot.sdk.errors import PlatformError
from aliquot.sdk.wire import Request

ACCEPT = {"Accept": "text/event-stream"}
PATIENCE_S = 60.0  # between two signs of life, which come every few seconds


def joining(activation_id: str) -> Request:
    """Of a run that somebody began."""
    return Request("GET", activation_path(activation_id), {}, ACCEPT, patience_s=PATIENCE_S)


def read_events(lines: Iterable[str], what: str) -> Iterator[tuple[str, Any]]:
    """Kind and data of each, up to the result. Raises `PlatformError` when there will be none."""
    import json

    event, data = "", ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            event = value
        elif field == "data":
            data += value
        elif not line and event:
            found = json.loads(data)
            if event == "error":
                raise PlatformError(f"{what}: {found['error']}")
            yield event, found
            if event == "result":
                return
            event, data = "", ""
    raise PlatformError(f"{what}: the platform stopped telling how it goes on")
