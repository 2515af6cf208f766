"""Requests for alarms and due times: pure functions of the request and the time."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.live.triggers.alarms.alarm import (
    FIRED_LAST,
    FIRED_ONCE,
    MAX_TRIGGERS_REACHED,
    PAUSED,
    after_firing,
    next_fire,
)
from aliquot.live.triggers.alarms.requests import AlarmRequest, change_alarm, make_alarm
from aliquot.live.triggers.alarms.schedule import SingleDate, read_date

NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000


def alarm(now_ms=NOON, **fields):
    return make_alarm(AlarmRequest(**fields), namespace="guest", trigger="t", identity="i", now_ms=now_ms)


def fires(one, now_ms, count):
    """Return the next firings, each at its due time, and the alarm after them."""
    found = []
    while len(found) < count and (due := next_fire(one, now_ms)) is not None:
        found.append(due)
        now_ms = max(now_ms, due)
        one = after_firing(one, now_ms)
    return found, one


def test_a_cron_alarm_is_due_whenever_its_expression_says():
    found, left = fires(alarm(cron="*/2 * * * *"), NOON, 3)
    assert found == [NOON + 2 * MINUTE, NOON + 4 * MINUTE, NOON + 6 * MINUTE]
    assert left.stopped is None


def test_the_start_itself_may_be_the_first_and_the_stop_the_last():
    one = alarm(cron="* * * * *", start_date=NOON + 5 * MINUTE, stop_date="2026-01-01T12:07:00Z")
    found, left = fires(one, NOON, 9)
    assert found == [NOON + 5 * MINUTE, NOON + 6 * MINUTE, NOON + 7 * MINUTE]
    assert left.stopped == FIRED_LAST


def test_an_alarm_may_be_bounded():
    found, left = fires(alarm(cron="* * * * * *", max_triggers=3), NOON, 9)
    assert len(found) == 3
    assert (left.fired, left.stopped) == (3, MAX_TRIGGERS_REACHED)
    assert len(fires(alarm(cron="* * * * * *", max_triggers=-1), NOON, 9)[0]) == 9


def test_an_interval_begins_half_a_minute_from_now_or_at_its_start():
    assert fires(alarm(minutes=2), NOON, 2)[0] == [NOON + MINUTE // 2, NOON + MINUTE // 2 + 2 * MINUTE]
    assert fires(alarm(minutes="2", start_date=NOON + 1), NOON, 2)[0] == [NOON + 1, NOON + 1 + 2 * MINUTE]


def test_what_an_interval_missed_is_not_made_up_for():
    one = alarm(minutes=10, start_date=NOON + 1)
    assert next_fire(one, NOON + 25 * MINUTE) == NOON + 1 + 30 * MINUTE


def test_a_single_date_is_due_until_it_has_fired():
    one = alarm(date=NOON + MINUTE)
    assert next_fire(one, NOON + 99 * MINUTE) == NOON + MINUTE
    assert fires(one, NOON, 9)[0] == [NOON + MINUTE]
    assert after_firing(one, NOON).stopped == FIRED_ONCE


@given(st.integers(1, 500), st.integers(0, 10**9), st.integers(0, 10**9))
def test_an_interval_is_due_at_the_first_of_its_moments_to_come(minutes, start, later):
    one = alarm(minutes=minutes, start_date=NOON + 1 + start)
    due = next_fire(one, NOON + later)
    period = minutes * MINUTE
    assert due > NOON + later
    assert (due - NOON - 1 - start) % period == 0
    assert due == NOON + 1 + start or due - period <= NOON + later


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "an alarm takes one of cron, minutes and date, not none of them"),
        ({"cron": "* * * * *", "minutes": 1}, "an alarm takes one of cron, minutes and date, not cron and minutes"),
        ({"cron": "61 * * * *"}, "cron pattern '61 * * * *' is not valid: minute: it takes 0 to 59, not 61"),
        ({"cron": NOON}, f"cron pattern '{NOON}' is not valid"),
        ({"cron": "* * * * *", "timezone": "Mars"}, "Invalid timezone."),
        ({"date": "tomorrow"}, "date parameter 'tomorrow' is not a valid Date"),
        ({"date": NOON - 1}, f"date parameter '{NOON - 1}' must be in the future"),
        ({"date": 1e300}, "date parameter '1e+300' is not a valid Date"),
        (
            {"date": NOON + 1, "delete_after_fire": "maybe"},
            "deleteAfterFire parameter must be one of [false, true, rules]",
        ),
        ({"minutes": "five"}, "the minutes parameter must be an integer"),
        ({"minutes": 1.5}, "the minutes parameter must be an integer"),
        ({"minutes": 0}, "the minutes parameter must be an integer greater than zero"),
        ({"minutes": 1e300}, "the minutes parameter must be at most 1000000000"),
        ({"minutes": 1, "max_triggers": 3}, "maxTriggers is not supported for the interval trigger feed"),
        ({"cron": "* * * * *", "max_triggers": 0}, "the maxTriggers parameter must be an integer from 1"),
        ({"cron": "* * * * *", "max_triggers": "x"}, "the maxTriggers parameter must be an integer, not 'x'"),
        (
            {"cron": "* * * * *", "max_triggers": 1, "stop_date": NOON + 9},
            "maxTriggers is not allowed when the stopDate",
        ),
        ({"cron": "* * * * *", "start_date": NOON}, f"startDate parameter '{NOON}' must be in the future"),
        ({"minutes": 1, "start_date": "2026-13-01"}, "startDate parameter '2026-13-01' is not a valid Date"),
        (
            {"cron": "* * * * *", "start_date": NOON + 9, "stop_date": NOON + 9},
            f"stopDate parameter '{NOON + 9}' must be greater than the startDate parameter '{NOON + 9}'",
        ),
        (
            {"cron": "0 0 1 1 *", "stop_date": NOON + 9},
            "the first scheduled trigger fire is not until after the stop date",
        ),
    ],
)
def test_a_refusal_says_what_openwhisk_says(fields, reason):
    with pytest.raises(InputError) as raised:
        alarm(**fields)
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize(
    ("given", "payload"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("alarmTest", {"payload": "alarmTest"}),
        ("[1]", {"payload": "[1]"}),
        (7, {"payload": 7}),
        (None, {}),
    ],
)
def test_a_payload_is_an_object_or_becomes_one(given, payload):
    assert alarm(cron="* * * * *", payload=given).payload == payload


@pytest.mark.parametrize(
    ("text", "epoch_ms"),
    [
        ("2026-01-01T12:00:00.000Z", NOON),
        ("2026-01-01T13:00:00+01:00", NOON),
        ("2026-01-01T12:00:00", NOON),
        ("2026-01-01", NOON - 12 * 60 * MINUTE),
    ],
)
def test_dates_are_iso_8601_and_utc_unless_they_say(text, epoch_ms):
    assert read_date(text) == epoch_ms


def test_a_change_keeps_what_it_does_not_name_and_counts_from_the_beginning():
    old = replace(alarm(cron="* * * * *", timezone="Europe/Berlin", max_triggers=2, payload={"a": 1}), fired=2)
    new = change_alarm(old, AlarmRequest(cron="*/5 * * * *"), now_ms=NOON + 1)
    assert (new.schedule.cron, new.schedule.timezone, new.payload) == ("*/5 * * * *", "Europe/Berlin", {"a": 1})
    assert (new.fired, new.changed) == (0, NOON + 1)


def test_a_change_that_names_nothing_of_its_kind_is_refused():
    once = alarm(date=NOON + MINUTE)
    with pytest.raises(InputError, match="no updatable parameters were specified"):
        change_alarm(once, AlarmRequest(start_date=NOON + 1, stop_date=NOON + 2), now_ms=NOON)


def test_a_start_after_the_stop_that_is_there_is_refused():
    old = alarm(cron="* * * * *", stop_date=NOON + 5 * MINUTE)
    with pytest.raises(InputError, match="must be less than the stopDate parameter"):
        change_alarm(old, AlarmRequest(start_date=NOON + 9 * MINUTE), now_ms=NOON)


def test_a_pause_lasts_until_it_is_ended_and_keeps_the_count():
    one = after_firing(alarm(cron="* * * * *", max_triggers=3), NOON)
    paused = change_alarm(one, AlarmRequest(active=False), now_ms=NOON)
    assert (paused.stopped, next_fire(paused, NOON)) == (PAUSED, None)
    again = change_alarm(paused, AlarmRequest(active=True), now_ms=NOON)
    assert (again.fired, next_fire(again, NOON)) == (1, NOON + MINUTE)


def test_one_that_is_spent_goes_on_only_with_another_date():
    spent = after_firing(alarm(date=NOON + 1), NOON + 1)
    with pytest.raises(InputError, match="it has fired as often"):
        change_alarm(spent, AlarmRequest(active=True), now_ms=NOON + 2)
    new = change_alarm(spent, AlarmRequest(date=NOON + MINUTE), now_ms=NOON + 2)
    assert next_fire(new, NOON + 2) == NOON + MINUTE
    assert isinstance(new.schedule, SingleDate)
