"""Time zones by name, and a search for the moments at which their offset from UTC changes."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_SEARCH_STEP_S = 86_400  # no zone has ever changed its offset and changed it back within a day


class ZoneError(ValueError):
    """The time zone does not exist."""


def read_zone(name: str | None) -> tzinfo:
    """Return a zone of the time zone database, or UTC without a name. Raises `ZoneError`."""
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:  # not found, or not a valid name
        raise ZoneError(name) from error


def offset_at(second: int, zone: tzinfo) -> int:
    """Return the zone's offset from UTC in seconds at a second since the epoch."""
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    return round(offset.total_seconds()) if offset is not None else 0


def first_change(begin: int, end: int, offset: int, zone: tzinfo) -> int | None:
    """Return the first second from begin to end, both included, with another offset."""
    if zone is UTC:
        return None
    low, high = begin - 1, min(begin - 1 + _SEARCH_STEP_S, end)  # low has the given offset
    while offset_at(high, zone) == offset:
        if high == end:
            return None
        low, high = high, min(high + _SEARCH_STEP_S, end)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high


def repeated_until(second: int, zone: tzinfo) -> int | None:
    """Return the end of the repeated period if the local time at this second occurs for the second time."""
    shown = datetime.fromtimestamp(second, zone)
    if not shown.fold:
        return None
    earlier, later = shown.replace(fold=0).utcoffset(), shown.utcoffset()
    length = round(((earlier or timedelta()) - (later or timedelta())).total_seconds())
    change = first_change(second - length, second, offset_at(second - length - 1, zone), zone)
    return change + length if change is not None else None
