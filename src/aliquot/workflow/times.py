"""Times of day as text (RFC 3339) and as seconds since 1970, in UTC."""

import re

TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
DAY_S = 86_400
DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MAX_HOUR, MAX_MINUTE, MAX_SECOND = 23, 59, 60  # 60 is a leap second
FEBRUARY = 2


def _days_before(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date."""
    shifted = year - (month <= FEBRUARY)  # years begin in March, so the leap day is their last
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _date_of(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return year + era * 400 + (month <= FEBRUARY), month, of_year - (153 * shifted + 2) // 5 + 1


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def parse_time(text: str) -> float | None:
    """Return the seconds since 1970 of a timestamp, or None for other text."""
    found = TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not 1 <= month <= len(DAYS_IN_MONTH) or hour > MAX_HOUR or minute > MAX_MINUTE or second > MAX_SECOND:
        return None
    if not 1 <= day <= DAYS_IN_MONTH[month - 1] + (month == FEBRUARY and _is_leap(year)):
        return None
    zone = found[8]
    offset = 0
    if zone not in "Zz":
        offset = (int(zone[1:3]) * 60 + int(zone[4:6])) * (-60 if zone[0] == "-" else 60)
    whole = _days_before(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second - offset
    return whole + float(found[7] or 0)


def format_time(seconds: float) -> str:
    """Return a time in milliseconds precision, for example 2026-11-17T15:23:57.120Z."""
    milliseconds = round(seconds * 1000)
    days, rest = divmod(milliseconds, DAY_S * 1000)
    year, month, day = _date_of(days)
    minutes, rest = divmod(rest, 60_000)
    hour, minute = divmod(minutes, 60)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{rest // 1000:02}.{rest % 1000:03}Z"
