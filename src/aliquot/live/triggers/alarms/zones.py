"""Time zones as stretches of a constant offset: where the clocks of a zone are changed, found by looking."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_LOOK_EVERY_S = 86_400  # no zone has ever changed its clocks and changed them back within a day


class ZoneError(ValueError):
    """There is no such time zone."""


def read_zone(name: str | None) -> tzinfo:
    """By its name in the time zone database; none: UTC. Raises `ZoneError`."""
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:  # not found, or not a zone's name at all
        raise ZoneError(name) from error


def offset_at(second: int, zone: tzinfo) -> int:
    """What its clocks show at that second since the epoch, less what UTC's show."""
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    return round(offset.total_seconds()) if offset is not None else 0


def first_change(begin: int, end: int, offset: int, zone: tzinfo) -> int | None:
    """The first second from begin to end, both included, that has another offset."""
    if zone is UTC:
        return None
    low, high = begin - 1, min(begin - 1 + _LOOK_EVERY_S, end)  # of those low has the offset
    while offset_at(high, zone) == offset:
        if high == end:
            return None
        low, high = high, min(high + _LOOK_EVERY_S, end)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high


def repeated_until(second: int, zone: tzinfo) -> int | None:
    """If the clocks show for the second time what they then show: when they show something new again."""
    shown = datetime.fromtimestamp(second, zone)
    if not shown.fold:
        return None
    earlier, later = shown.replace(fold=0).utcoffset(), shown.utcoffset()
    length = round(((earlier or timedelta()) - (later or timedelta())).total_seconds())
    change = first_change(second - length, second, offset_at(second - length - 1, zone), zone)
    return change + length if change is not None else None
