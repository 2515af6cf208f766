"""Forecasts of demand: intervals that cover, candidates side by side, and the choice for each series."""

from random import Random

import pytest

from aliquot.learn.demand import forecaster as forecasting
from aliquot.learn.demand.candidates import CANDIDATES
from aliquot.learn.demand.forecaster import MAX_FILLED_STEPS, DemandForecaster
from aliquot.learn.demand.intervals import MAX_SCORES, AdaptiveInterval
from aliquot.learn.demand.series import MIN_OWN_SCORES, Band, DemandSeries, pinball


def coverage(values, forecast, seed="0"):
    """Return the part of the values that an interval around a constant forecast covers, ties by draw."""
    interval = AdaptiveInterval(Random(seed))
    outside = [interval.learn(value, forecast) for value in values]
    told = [each for each in outside if each is not None]
    return 1 - sum(told) / len(told)


@pytest.mark.parametrize("name", ["counts", "zeros", "changing", "bursts"])
def test_intervals_cover_nine_tenths_of_counts_zeros_changes_and_bursts(name):
    random = Random(name)
    values = {
        "counts": [float(random.randrange(4)) for _ in range(3000)],
        "zeros": [0.0] * 3000,
        "changing": [random.gauss(0, 1 + step / 300) ** 2 for step in range(3000)],
        "bursts": [random.expovariate(0.1) if step % 97 < 5 else 0.0 for step in range(3000)],
    }[name]
    assert 0.88 < coverage(values, 1.0) < 0.92


def test_an_interval_keeps_a_bounded_number_of_errors():
    interval = AdaptiveInterval(Random(0))
    for step in range(3 * MAX_SCORES):
        interval.learn(float(step % 7), 3.0)
    assert len(interval.above._ordered) == len(interval.above._newest) == MAX_SCORES
    assert interval.above._ordered == sorted(interval.above._newest)


def test_bands_are_ordered_and_never_negative():
    series, random = DemandSeries((1, 5), "s"), Random(1)
    for _ in range(400):
        series.learn(random.choice([0.0, 0.0, 3.0, 50.0]))
        for model in (*CANDIDATES, "blend"):
            for steps in (1, 5):
                band = series.band(model, steps)
                assert 0 <= band.low <= band.middle <= band.high


def test_a_periodic_series_is_served_by_the_seasonal_candidate():
    series = DemandSeries((1,), "s")
    for step in range(300):
        series.learn(20.0 if step % 10 == 0 else 1.0)
    assert series.serving[1] in {"seasonal", "blend"}
    assert series.kind == "periodic"
    assert series.losses(1)["seasonal"] < 0.2 * series.losses(1)["mean"]
    assert series.band("seasonal", 1).middle == 20.0


def test_a_forecast_is_scored_by_the_value_that_came_so_many_steps_later():
    series = DemandSeries((3,), "s")
    made = [series.learn(float(value)) for value in range(6)]
    assert [bool(each) for each in made] == [False, False, False, True, True, True]
    assert made[3][3]["last"].band.middle == 0.0  # told after the first value
    assert made[5][3]["last"].band.middle == 2.0


def test_the_loss_is_least_at_the_quantiles():
    right, wrong = Band(1, 1.0, 5.0, 9.0), Band(1, 4.9, 5.0, 5.1)
    values = [1.0, 3.0, 5.0, 7.0, 9.0]
    assert sum(pinball(value, right) for value in values) < sum(pinball(value, wrong) for value in values)


def test_a_new_application_begins_with_the_choice_of_its_class():
    forecaster = DemandForecaster((1,))
    for step in range(200):
        forecaster.observe("known", step, 20.0 if step % 10 == 0 else 1.0)
    for step in range(30):
        forecaster.observe("new", step, 20.0 if step % 10 == 0 else 1.0)
    assert forecaster._series["new"].scores < MIN_OWN_SCORES
    assert forecaster.model_of("new", 1) == forecaster.model_of("known", 1)
    assert forecaster.outlook("new").models == (forecaster.model_of("new", 1),)
    assert forecaster.outlook("nobody") is None


def test_pauses_are_filled_with_zeros_up_to_a_limit_and_jumps_back_are_ignored():
    forecaster = DemandForecaster((1,))
    forecaster.observe("f", 0, 5.0)
    forecaster.observe("f", 10, 5.0)
    assert forecaster._series["f"].values == 11
    assert forecaster.observe("f", 3, 100.0) == {}
    forecaster.observe("f", 10**9, 5.0)
    assert forecaster._series["f"].values == 12 + MAX_FILLED_STEPS


def test_applications_beyond_the_limit_are_forgotten_the_oldest_first(monkeypatch):
    monkeypatch.setattr(forecasting, "MAX_SERIES", 2)
    forecaster = DemandForecaster((1,))
    for step, key in enumerate(["a", "b", "a", "c"]):
        forecaster.observe(key, step, 1.0)
    assert forecaster.keys() == ["a", "c"]


def test_equal_series_give_equal_forecasts():
    first, again = DemandForecaster((1, 5)), DemandForecaster((1, 5))
    random = Random(3)
    values = [float(random.randrange(9)) for _ in range(200)]
    for step, value in enumerate(values):
        assert first.observe("f", step, value) == again.observe("f", step, value)
    assert first.outlook("f") == again.outlook("f")
