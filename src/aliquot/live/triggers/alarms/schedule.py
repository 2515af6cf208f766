"""Schedules: by cron, at an interval, or once; each says when it is due next. Moments are milliseconds since the epoch.

Dates are kept as they were given, so that who asks gets back what they gave: a number of milliseconds, or ISO 8601.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from aliquot.live.triggers.alarms.cron import Cron, read_cron
from aliquot.live.triggers.alarms.zones import read_zone

Moment: TypeAlias = int | float | str
MINUTE_MS = 60_000
_LATEST_MS = 221_845_392_000_000  # the year 9000: beyond, calendars end


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
    delete_after_fire: str = "false"  # or "true", or "rules": the trigger's too


Schedule: TypeAlias = CronSchedule | IntervalSchedule | SingleDate


def due_after(schedule: Schedule, now_ms: int) -> int | None:
    """When it is due next; None: not any more. One that is due once is due until it has fired."""
    if isinstance(schedule, SingleDate):
        return read_date(schedule.date)
    start = None if schedule.start_date is None else read_date(schedule.start_date)
    if isinstance(schedule, CronSchedule):
        after = now_ms if start is None else max(now_ms, start - 1)  # the start itself may be the first
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
    """Raises `ValueError` if it is none. Without an offset it is UTC."""
    if isinstance(given, str):
        read = datetime.fromisoformat(given.strip())
        moment = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000
    else:
        moment = float(given)
    if not 0 <= moment < _LATEST_MS:  # not a number is not within either
        raise ValueError(f"{given} is beyond the calendar")
    return int(moment)
