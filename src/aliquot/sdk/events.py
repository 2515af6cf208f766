"""The events of a running call: the lines that it prints, and in the end its record."""

from collections.abc import Iterable, Iterator
from typing import Any

from aliquot.sdk.calls import activation_path
from aliquot.sdk.errors import PlatformError
from aliquot.sdk.wire import HttpRequest

ACCEPT = {"Accept": "text/event-stream"}
EVENTS_TIMEOUT_S = 60.0  # the platform sends something every few seconds


def events_request(activation_id: str) -> HttpRequest:
    """Return the request for the events of a call that was started before."""
    return HttpRequest("GET", activation_path(activation_id), {}, ACCEPT, timeout_s=EVENTS_TIMEOUT_S)


def read_events(lines: Iterable[str], what: str, last: str = "result") -> Iterator[tuple[str, Any]]:
    """Yield the kind and data of each event up to the last kind. Raises `PlatformError` if it does not come."""
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
            if event == last:
                return
            event, data = "", ""
    raise PlatformError(f"{what}: the platform stopped sending its events")
