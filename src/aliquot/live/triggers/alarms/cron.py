"""Cron expressions: read from five or six fields, and asked for the next second at which they fire.

Fields are those of crontab, with seconds before them if there are six: second, minute, hour, day of month, month, day
of week. Each is a list of values, ranges and steps; months and weekdays may be named; `?` is `*`. When both kinds of
day are restricted, a day that is either of them will do.

When clocks are changed, an expression whose hour is `*` goes by the seconds that pass: hours that come twice count
twice, those that are left out do not count. Any other names times of the day: what is left out fires as the clock jumps
over it, and what comes twice fires the first time.
"""

import calendar
import math
import re
from datetime import UTC, date, datetime, timedelta, tzinfo

from msgspec import Struct

from aliquot.live.triggers.alarms.zones import first_change, offset_at, repeated_until

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MOST_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALIASES = {
    "@secondly": "* * * * * *",
    "@minutely": "0 * * * * *",
    "@hourly": "0 0 * * * *",
    "@daily": "0 0 0 * * *",
    "@weekly": "0 0 0 * * 0",
    "@weekdays": "0 0 0 * * 1-5",
    "@weekends": "0 0 0 * * 0,6",
    "@monthly": "0 0 0 1 * *",
    "@yearly": "0 0 0 1 1 *",
}
_LONGEST = 512  # characters: an expression with every value of every field written out has fewer
_FURTHEST_YEARS = 9  # 29 February may be eight years away
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", re.ASCII)


class CronError(ValueError):
    """The expression cannot be; the text says which field, and what it takes."""


class _Field(Struct, frozen=True):
    name: str
    least: int
    last: int  # of `*` and of open steps
    names: tuple[str, ...] = ()
    most: int = 0  # that may be written, if it is not the last


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _WEEKDAYS, most=7),  # Sunday is 0 and 7
)


class Cron(Struct, frozen=True):
    """Values in ascending order, a tuple for each field. Weekdays count from Sunday, which is 0."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    def next_after(self, moment: float, zone: tzinfo = UTC) -> int:
        """The first second after the moment at which it fires; both since the epoch."""
        at = math.floor(moment) + 1
        if self._names_times and (end := repeated_until(at, zone)) is not None:
            at = end
        offset = offset_at(at - 1, zone)
        while True:
            wall = self._first_from(at + offset)
            change = first_change(at, wall - offset, offset, zone)
            if change is None:
                return wall - offset
            later = offset_at(change, zone)
            if self._names_times and wall < change + later:  # the clock jumps over it
                return change
            at = change
            if self._names_times and later < offset:
                at += offset - later
            offset = later

    def on_day(self, day: date) -> bool:
        by_date = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        if len(self.days) < 31 and len(self.weekdays) < 7:  # noqa: PLR2004 - how many there are
            return by_date or by_weekday
        return by_date and by_weekday

    @property
    def _names_times(self) -> bool:
        return len(self.hours) < 24  # noqa: PLR2004 - how many there are

    def _first_from(self, wall: int) -> int:
        """The first second of a clock that is never changed, that one or later."""
        start = datetime.fromtimestamp(wall, UTC)
        day = start.date()
        within = self._time_from(start.hour, start.minute, start.second)
        if within is None or day.month not in self.months or not self.on_day(day):
            day = self._day_after(day)
            within = self.hours[0] * 3600 + self.minutes[0] * 60 + self.seconds[0]
        return calendar.timegm(day.timetuple()) + within

    def _time_from(self, hour: int, minute: int, second: int) -> int | None:
        """Seconds from midnight of the first time of a day, that one or later."""
        for at_hour in self.hours:
            if at_hour < hour:
                continue
            for at_minute in self.minutes:
                if at_hour == hour and at_minute < minute:
                    continue
                same = (at_hour, at_minute) == (hour, minute)
                for at_second in self.seconds:
                    if not same or at_second >= second:
                        return at_hour * 3600 + at_minute * 60 + at_second
        return None

    def _day_after(self, day: date) -> date:
        last = day.year + _FURTHEST_YEARS
        day += timedelta(days=1)
        while day.year <= last:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
            elif self.on_day(day):
                return day
            else:
                day += timedelta(days=1)
        raise AssertionError(f"{self} was read, and never fires")


def read_cron(text: str) -> Cron:
    """Raises `CronError`."""
    if len(text) > _LONGEST:
        raise CronError(f"it has {len(text)} characters; at most {_LONGEST} are taken")
    parts = _ALIASES.get(text.strip().lower(), text).lower().split()
    if len(parts) == len(_FIELDS) - 1:
        parts.insert(0, "0")
    if len(parts) != len(_FIELDS):
        raise CronError(f"it takes 5 fields, or 6 with seconds first, not {len(parts)}")
    seconds, minutes, hours, days, months, weekdays = map(_read_field, _FIELDS, parts)
    weekdays = tuple(sorted({day % 7 for day in weekdays}))
    every_weekday = len(weekdays) == len(_WEEKDAYS)
    if every_weekday and all(days[0] > _MOST_DAYS[month - 1] for month in months):
        raise CronError(f"day of month: no month that it names has a day {days[0]}")
    return Cron(seconds, minutes, hours, days, months, weekdays)


def _read_field(field: _Field, text: str) -> tuple[int, ...]:
    values: set[int] = set()
    for part in text.replace("?", "*").split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise CronError(f"{field.name}: '{part}' is not a value, a range such as 1-5 or a step such as */2")
        star, first, last, step = found.groups()
        low = field.least if star else _value(field, first)
        high = field.last if star or step else low
        if last:
            high = _value(field, last)
            if high == 0 < low and field.most:  # a week may end with its Sunday
                high = field.most
        if high < low:
            raise CronError(f"{field.name}: the range {part} ends before it begins")
        if step and not int(step):
            raise CronError(f"{field.name}: the step of {part} must be 1 or more")
        values.update(range(low, high + 1, int(step or 1)))
    return tuple(sorted(values))


def _value(field: _Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.least
    most = field.most or field.last
    if not text.isdecimal() or not field.least <= int(text) <= most:
        named = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise CronError(f"{field.name}: it takes {field.least} to {most}{named}, not {text}")
    return int(text)
