"""Parse cron expressions, and find the next second at which one fires.

The fields are those of crontab, with seconds first if there are six: second, minute, hour, day of month, month, day of
week. Each is a list of values, ranges and steps. Months and weekdays may be named, and `?` means `*`. If both kinds of
day are restricted, a day that matches either of them is enough.

Daylight saving time: an expression that fires in every hour fires in repeated hours twice, and not in skipped hours.
Any other expression names times of the day. A skipped time fires at the jump, and a repeated time fires once, at its
first occurrence.
"""

import calendar
import math
import re
from datetime import UTC, date, datetime, timedelta, tzinfo

from msgspec import Struct

from aliquot.live.triggers.alarms.zones import first_change, offset_at, repeated_until

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MAX_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
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
_MAX_LENGTH = 512  # characters; an expression with every value of every field is shorter
_MAX_SEARCH_YEARS = 9  # the next 29 February may be eight years away
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", re.ASCII)


class CronError(ValueError):
    """The expression is invalid. The message names the field and the values that it takes."""


class _CronField(Struct, frozen=True):
    name: str
    minimum: int
    maximum: int  # last value of `*` and of steps without an end
    names: tuple[str, ...] = ()
    max_written: int = 0  # highest value that may be written, if it differs from the maximum


_FIELDS = (
    _CronField("second", 0, 59),
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of month", 1, 31),
    _CronField("month", 1, 12, _MONTHS),
    _CronField("day of week", 0, 6, _WEEKDAYS, max_written=7),  # Sunday is both 0 and 7
)


class Cron(Struct, frozen=True):
    """A parsed expression. Each field holds its values in ascending order. Sunday is weekday 0."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    def next_after(self, moment: float, zone: tzinfo = UTC) -> int:
        """Return the first second after a moment at which it fires. Both are since the epoch."""
        at = math.floor(moment) + 1
        if self._restricts_hours and (end := repeated_until(at, zone)) is not None:
            at = end
        offset = offset_at(at - 1, zone)
        while True:
            wall = self._next_wall_time(at + offset)
            change = first_change(at, wall - offset, offset, zone)
            if change is None:
                return wall - offset
            later = offset_at(change, zone)
            if self._restricts_hours and wall < change + later:  # the change of clocks skips it
                return change
            at = change
            if self._restricts_hours and later < offset:
                at += offset - later
            offset = later

    def on_day(self, day: date) -> bool:
        """Return True if it can fire on this day of its months."""
        by_date = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        if len(self.days) < 31 and len(self.weekdays) < 7:  # noqa: PLR2004 - how many there are
            return by_date or by_weekday
        return by_date and by_weekday

    @property
    def _restricts_hours(self) -> bool:
        return len(self.hours) < 24  # noqa: PLR2004 - how many there are

    def _next_wall_time(self, wall: int) -> int:
        """Return the first matching second at or after `wall`, in local time without changes of clocks."""
        start = datetime.fromtimestamp(wall, UTC)
        day = start.date()
        time_s = self._next_time_of_day(start.hour, start.minute, start.second)
        if time_s is None or day.month not in self.months or not self.on_day(day):
            day = self._next_day(day)
            time_s = self.hours[0] * 3600 + self.minutes[0] * 60 + self.seconds[0]
        return calendar.timegm(day.timetuple()) + time_s

    def _next_time_of_day(self, hour: int, minute: int, second: int) -> int | None:
        """Return the first matching time of day at or after the given one, in seconds since midnight."""
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

    def _next_day(self, day: date) -> date:
        last = day.year + _MAX_SEARCH_YEARS
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
    """Parse an expression. Raises `CronError`."""
    if len(text) > _MAX_LENGTH:
        raise CronError(f"it has {len(text)} characters; at most {_MAX_LENGTH} are taken")
    parts = _ALIASES.get(text.strip().lower(), text).lower().split()
    if len(parts) == len(_FIELDS) - 1:
        parts.insert(0, "0")
    if len(parts) != len(_FIELDS):
        raise CronError(f"it takes 5 fields, or 6 with seconds first, not {len(parts)}")
    seconds, minutes, hours, days, months, weekdays = map(_read_field, _FIELDS, parts)
    weekdays = tuple(sorted({day % 7 for day in weekdays}))
    every_weekday = len(weekdays) == len(_WEEKDAYS)
    if every_weekday and all(days[0] > _MAX_DAYS[month - 1] for month in months):
        raise CronError(f"day of month: no month that it names has a day {days[0]}")
    return Cron(seconds, minutes, hours, days, months, weekdays)


def _read_field(field: _CronField, text: str) -> tuple[int, ...]:
    values: set[int] = set()
    for part in text.replace("?", "*").split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise CronError(f"{field.name}: '{part}' is not a value, a range such as 1-5 or a step such as */2")
        star, first, last, step = found.groups()
        low = field.minimum if star else _value(field, first)
        high = field.maximum if star or step else low
        if last:
            high = _value(field, last)
            if high == 0 < low and field.max_written:  # a range of weekdays may end with Sunday
                high = field.max_written
        if high < low:
            raise CronError(f"{field.name}: the range {part} ends before it begins")
        if step and not int(step):
            raise CronError(f"{field.name}: the step of {part} must be 1 or more")
        values.update(range(low, high + 1, int(step or 1)))
    return tuple(sorted(values))


def _value(field: _CronField, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.minimum
    limit = field.max_written or field.maximum
    if not text.isdecimal() or not field.minimum <= int(text) <= limit:
        named = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise CronError(f"{field.name}: it takes {field.minimum} to {limit}{named}, not {text}")
    return int(text)
