"""Cron expressions compared with their definition second by second, also around changes of clocks."""

import functools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.triggers.alarms.cron import CronError, read_cron
from aliquot.live.triggers.alarms.zones import ZoneError, read_zone

BERLIN = ZoneInfo("Europe/Berlin")
WINDOW_S = 5400

# Moments at which clocks change, and one at which they do not.
CHANGES = [
    (BERLIN, datetime(2026, 3, 29, 1, tzinfo=UTC)),
    (BERLIN, datetime(2026, 10, 25, 1, tzinfo=UTC)),
    (ZoneInfo("America/New_York"), datetime(2026, 11, 1, 6, tzinfo=UTC)),
    (ZoneInfo("Australia/Lord_Howe"), datetime(2026, 4, 4, 15, tzinfo=UTC)),  # by half an hour
    (ZoneInfo("Australia/Lord_Howe"), datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    (ZoneInfo("Pacific/Apia"), datetime(2011, 12, 30, 10, tzinfo=UTC)),  # by a whole day
    (ZoneInfo("Asia/Kathmandu"), datetime(2026, 2, 28, 18, 15, tzinfo=UTC)),
]


def field(low, high):
    """Return a strategy for the text of a field."""
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    part = st.one_of(
        st.just("*"),
        value.map(str),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(pair, st.integers(1, 30)).map(lambda it: f"{it[0][0]}-{it[0][1]}/{it[1]}"),
        st.integers(1, 30).map(lambda step: f"*/{step}"),
    )
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


hours = st.sampled_from(["*", "*", "0-3", "*/2", "1,2,3", "2", "12-18"])
expressions = st.tuples(field(0, 59), field(0, 59), hours, field(1, 28), field(1, 12), field(0, 6)).map(" ".join)
distances = st.one_of(st.integers(-2, 2), st.integers(-WINDOW_S, WINDOW_S))
moments = st.tuples(st.sampled_from(CHANGES), distances)


@functools.cache
def values(text, low, high):
    """Return the values of a field, parsed independently of `read_cron`."""
    found = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        ends = (low, high) if span == "*" else (int(first), int(last or first))
        found |= set(range(ends[0], ends[1] + 1)) & {ends[0] + k * int(step or 1) for k in range(60)}
    return found


def shows(expression, shown):
    """Return True if the expression matches this local time."""
    second, minute, hour, day, month, weekday = expression.split()
    by_date, by_weekday = shown.day in values(day, 1, 31), shown.isoweekday() % 7 in values(weekday, 0, 6)
    both = len(values(day, 1, 31)) < 31 and len(values(weekday, 0, 6)) < 7
    return (
        shown.second in values(second, 0, 59)
        and shown.minute in values(minute, 0, 59)
        and shown.hour in values(hour, 0, 23)
        and shown.month in values(month, 1, 12)
        and ((by_date or by_weekday) if both else (by_date and by_weekday))
    )


def left_out(before, after):
    """Yield the local times that are skipped between one second and the next."""
    at = before.replace(tzinfo=None) + timedelta(seconds=1)
    while at < after.replace(tzinfo=None):
        yield at
        at += timedelta(seconds=1)


def fires(expression, second, zone):
    shown, before = (datetime.fromtimestamp(at, zone) for at in (second, second - 1))
    every_hour = len(values(expression.split()[2], 0, 23)) == 24
    if shows(expression, shown) and (every_hour or not shown.fold):
        return True
    jumps = shown.utcoffset() > before.utcoffset()
    return jumps and not every_hour and any(shows(expression, at) for at in left_out(before, shown))


@given(expressions, moments)
def test_the_next_firing_is_the_first_second_that_is_one(expression, moment):
    (zone, change), distance = moment
    start = int(change.timestamp()) + distance
    found = read_cron(expression).next_after(start, zone)
    assert found > start
    assert fires(expression, found, zone)
    for second in range(start + 1, min(found, start + WINDOW_S)):
        assert not fires(expression, second, zone)


@given(expressions, st.integers(0, 4 * 10**9), st.floats(0, 0.999))
def test_part_of_a_second_does_not_matter(expression, second, part):
    cron = read_cron(expression)
    assert cron.next_after(second + part) == cron.next_after(second)


def after(expression, text, zone=UTC, count=1):
    """Return the next firings after a moment, in the zone's local time."""
    cron, at, found = read_cron(expression), datetime.fromisoformat(text).replace(tzinfo=zone).timestamp(), []
    for _ in range(count):
        at = cron.next_after(at, zone)
        found.append(datetime.fromtimestamp(at, zone).isoformat())
    return found


@pytest.mark.parametrize(
    ("expression", "moment", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:00", "2026-01-01T00:01:00+00:00"),
        ("*/30 * * * * *", "2026-01-01T00:00:00", "2026-01-01T00:00:30+00:00"),
        ("0 9 8 * *", "2026-01-08T09:00:00", "2026-02-08T09:00:00+00:00"),
        ("0 0 29 feb *", "2026-01-01T00:00:00", "2028-02-29T00:00:00+00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00+00:00"),
        ("0 0 13 * FRI", "2026-01-01T00:00:00", "2026-01-02T00:00:00+00:00"),  # a Friday; either day matches
        ("0 0 ? * sat-sun", "2026-01-03T00:00:00", "2026-01-04T00:00:00+00:00"),
        ("0 0 ? * 0-0", "2026-01-01T00:00:00", "2026-01-04T00:00:00+00:00"),
        ("0 0 * * 7", "2026-01-01T00:00:00", "2026-01-04T00:00:00+00:00"),
        ("5/20 * * * *", "2026-01-01T00:05:00", "2026-01-01T00:25:00+00:00"),
        ("@daily", "2026-01-01T12:00:00", "2026-01-02T00:00:00+00:00"),
        ("  0  12  *  *  1-5 ", "2026-01-02T12:00:00", "2026-01-05T12:00:00+00:00"),
    ],
)
def test_fields_mean_what_crontab_means(expression, moment, expected):
    assert after(expression, moment) == [expected]


def test_a_time_that_is_left_out_fires_as_the_clock_jumps_over_it():
    assert after("30 2 * * *", "2026-03-28T03:00:00", BERLIN, 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert after("30 2 * * *", "2026-03-29T01:59:59", BERLIN) == ["2026-03-29T03:00:00+02:00"]


def test_a_time_that_comes_twice_fires_the_first_time():
    assert after("30 2 * * *", "2026-10-25T00:00:00", BERLIN, 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_every_hour_is_every_hour_that_passes():
    assert after("15 * * * *", "2026-10-25T01:30:00", BERLIN, 3) == [
        "2026-10-25T02:15:00+02:00",
        "2026-10-25T02:15:00+01:00",
        "2026-10-25T03:15:00+01:00",
    ]
    assert after("15 * * * *", "2026-03-29T01:30:00", BERLIN) == ["2026-03-29T03:15:00+02:00"]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("60 * * * *", "minute: it takes 0 to 59, not 60"),
        ("* 24 * * *", "hour: it takes 0 to 23, not 24"),
        ("* * 0 * *", "day of month: it takes 1 to 31, not 0"),
        ("* * * foo *", "month: it takes 1 to 12 or jan to dec, not foo"),
        ("* * * * 8", "day of week: it takes 0 to 7 or sun to sat, not 8"),
        ("x * * * * *", "second: it takes 0 to 59, not x"),
        ("5-1 * * * *", "minute: the range 5-1 ends before it begins"),
        ("*/0 * * * *", "minute: the step of */0 must be 1 or more"),
        ("1,,2 * * * *", "minute: '' is not a value"),
        ("1+1 * * * *", "minute: '1+1' is not a value"),
        ("0 0 30 2 *", "day of month: no month that it names has a day 30"),
        ("0 0 31 4,6 *", "day of month: no month that it names has a day 31"),
        ("* * *", "it takes 5 fields, or 6 with seconds first, not 3"),
        ("", "it takes 5 fields, or 6 with seconds first, not 0"),
        ("1763265600000", "it takes 5 fields, or 6 with seconds first, not 1"),
        ("0," * 300, "it has 600 characters; at most 512 are taken"),
    ],
)
def test_an_error_names_the_field_and_what_it_takes(expression, reason):
    with pytest.raises(CronError) as raised:
        read_cron(expression)
    assert str(raised.value).startswith(reason)


@given(st.text(alphabet="0123456789*/-,? jansu@", max_size=30))
def test_any_text_is_an_expression_that_fires_or_an_error(text):
    try:
        cron = read_cron(text)
    except CronError:
        return
    assert cron.next_after(0) > 0


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "Europe", "tzdata.zi", "\0"]
)
def test_what_is_no_time_zone_is_refused(name):
    with pytest.raises(ZoneError):
        read_zone(name)


def test_without_a_zone_it_is_utc():
    assert read_zone(None) is UTC
