"""Forecasts of calls: the chance of a call in a step, and how many run at once."""

from aliquot.core.provisioning.holds import MAX_ROWS
from aliquot.learn.demand.calls import MAX_IDLE_STEPS, CallForecaster

APP = ("t", "f")


def test_a_regular_call_is_likely_at_its_time_and_unlikely_before():
    forecaster = CallForecaster(60)
    for number in range(60):
        forecaster.seen(APP, 600.0 * number, 1)
    last_s = 600.0 * 59
    (at_time,) = forecaster.forecast(last_s + 595)
    assert at_time.chance > 0.5
    assert (at_time.tenant, at_time.function, at_time.window_s) == ("t", "f", 60)
    again = CallForecaster(60)
    for number in range(60):
        again.seen(APP, 600.0 * number, 1)
    before = again.forecast(last_s + 300)
    assert not before or before[0].chance < 0.1


def test_as_many_calls_at_once_are_expected_as_there_were():
    forecaster = CallForecaster(60)
    for number in range(100):
        forecaster.seen(APP, 120.0 * number, 4)
    (row,) = forecaster.forecast(120.0 * 100)
    assert 0 <= row.low <= row.middle <= row.high
    assert 3.5 < row.high < 4.5
    assert row.measured == 4


def test_a_new_application_is_told_with_what_was_measured():
    forecaster = CallForecaster(60)
    forecaster.seen(APP, 0.0, 3)
    (row,) = forecaster.forecast(60.0)
    assert row.high == 3
    assert row.middle <= row.high


def test_applications_without_calls_are_forgotten_and_rows_are_bounded():
    forecaster = CallForecaster(60)
    for number in range(MAX_ROWS + 50):
        for minute in range(3):
            forecaster.seen(("t", f"f{number}"), 60.0 * minute, 1)
    assert len(forecaster.forecast(185.0)) == MAX_ROWS
    assert forecaster.forecast(60.0 * (MAX_IDLE_STEPS + 10)) == ()
    assert not forecaster._known


def test_a_time_of_day_that_jumps_back_changes_nothing():
    forecaster = CallForecaster(60)
    for number in range(20):
        forecaster.seen(APP, 10**9 + 120.0 * number, 1)
    before = forecaster.forecast(10**9 + 2400.0)
    forecaster.seen(APP, 5.0, 1)
    after = forecaster.forecast(10**9 + 2400.0)
    assert [row.chance for row in before] == [row.chance for row in after]
