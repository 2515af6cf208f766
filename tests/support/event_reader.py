"""Reads server-sent events as their clients do."""

import json
from typing import NamedTuple

STREAM = {"Accept": "text/event-stream"}


class Event(NamedTuple):
    kind: str
    id: str
    data: object


def events_of(response):
    """Yield each event as it arrives. A comment is an event of kind `:`."""
    fields = {}
    for line in response.iter_lines():
        if not line:
            if fields:
                yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
            fields = {}
        elif line.startswith(":"):
            yield Event(":", "", line[1:].strip())
        else:
            name, _, value = line.partition(": ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value


def text(event):
    """Return the text of a log line without its time."""
    return event.data.partition(" ")[2].strip()
