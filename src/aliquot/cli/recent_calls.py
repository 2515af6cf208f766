"""The newest calls of a namespace, looked through for failed and slow ones."""

import re
from datetime import datetime
from typing import Any

from aliquot.cli.gateway import GatewayClient, annotations_of
from aliquot.clock import now_ms
from aliquot.core.errors import InputError
from aliquot.sdk.calls import NAMESPACE

MAX_SCANNED = 5000
NO_CALLS = "there are no calls yet; aliquot invoke NAME makes one"
_MAX_LISTED = 200


def scan_calls(gateway: GatewayClient, query: dict[str, str | int], most: int) -> list[dict[str, Any]]:
    """Return the records of the newest calls that match, without results and logs, at most so many."""
    query = {"upto": now_ms(), **query}  # new calls meanwhile would shift the pages
    found: list[dict[str, Any]] = []
    while len(found) < most:
        page_query = {**query, "limit": min(_MAX_LISTED, most - len(found)), "skip": len(found)}
        page = gateway.send("GET", f"{NAMESPACE}/activations", "the activations", query=page_query)
        found += page
        if len(page) < _MAX_LISTED:
            break
    return found


def took_ms(call: dict[str, Any]) -> float:
    """Return the time from the head of a call's request to its end."""
    notes = annotations_of(call)
    return float(call.get("duration", 0)) + float(notes.get("waitTime", 0)) + float(notes.get("gatewayTime", 0))


def read_moment(value: str, option: str) -> int:
    """Parse a time and return epoch milliseconds."""
    from aliquot.sdk.units import read_ms

    if value.isdecimal():
        return int(value)
    if re.match(r"\d{4}-", value):
        try:
            return round(datetime.fromisoformat(value).timestamp() * 1000)
        except ValueError as error:
            raise InputError(f"{option}: '{value}' is not a time, such as 2026-01-31T12:00") from error
    return now_ms() - read_ms(value, option)
