"""Schedules of alarms: cron expressions, intervals and single dates. Times are in milliseconds since the epoch.

Dates are stored as the client wrote them, as a number of milliseconds or as ISO 8601, and are shown in the same form.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from aliquot.live.triggers.alarms.cron import Cron, read_cron
from aliquot.live.triggers.alarms.zones import read_zone

Moment: TypeAlias = int | float | str
MINUTE_MS = 60_000
_MAX_MS = 221_845_392_000_000  # the year 9000, because Python's dates end with the year 9999


class CronSchedule(Struct, frozen=True, tag="cron"):
    cron: str
    timezone: str | None = None
    start_date: Moment | None = None
    stop_date: Moment | None = None
    max_triggers: int | None = None


class IntervalSchedule(Struct, frozen=True, tag="interval"):
    minutes: int
    start_date: Moment
    stop_date: Moment | None = None


class SingleDate(Struct, frozen=True, tag="once"):
    date: Moment
    delete_after_fire: str = "false"  # "true" deletes the trigger, "rules" its rules, too


Schedule: TypeAlias = CronSchedule | IntervalSchedule | SingleDate


def due_after(schedule: Schedule, now_ms: int) -> int | None:
    """Return the next due time, or None after the stop date. A single date is always returned, even in the past."""
    if isinstance(schedule, SingleDate):
        return read_date(schedule.date)
    start = None if schedule.start_date is None else read_date(schedule.start_date)
    if isinstance(schedule, CronSchedule):
        after = now_ms if start is None else max(now_ms, start - 1)  # the start itself may be the first firing
        due = _parsed(schedule.cron).next_after(after / 1000, read_zone(schedule.timezone)) * 1000
    else:
        assert start is not None  # noqa: S101 - an interval has one
        due = start
        if now_ms >= start:
            period = schedule.minutes * MINUTE_MS
            due += ((now_ms - start) // period + 1) * period
    if schedule.stop_date is not None and due > read_date(schedule.stop_date):
        return None
    return due


@lru_cache(4096)
def _parsed(cron: str) -> Cron:
    return read_cron(cron)


def read_date(given: Moment) -> int:
    """Parse a date. Without an offset it is in UTC. Raises `ValueError`."""
    if isinstance(given, str):
        read = datetime.fromisoformat(given.strip())
        moment = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000
    else:
        moment = float(given)
    if not 0 <= moment < _MAX_MS:  # also refuses NaN
        raise ValueError(f"{given} is beyond the calendar")
    return int(moment)
