"""Forecasts in virtual time: calls find sandboxes that were held for them, by the live platform's forecaster."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.learn.demand.versions import CHOSEN, DemandCard, registry_of
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.forecasting.choice import parse_forecasting
from aliquot.sim.forecasting.clairvoyant import ClairvoyantForecaster
from aliquot.sim.forecasting.forecaster import ForecastSettings

REPORT = FunctionSpec("report", memory_bytes=2 * GIB, times=Times(2.0, 8.0))
CALLS, PERIOD_S = 40, 1200.0


def colds(source, *, policy="forecast", keepalive=None):
    """Return how many regular calls were cold."""
    settings = parse_forecasting(str(source))
    workload = ListedWorkload(Arrival(PERIOD_S * number, "report") for number in range(CALLS))
    scenario = Scenario(
        [DeviceSpec("gpu-0", memory_bytes=16 * GIB)],
        {"report": REPORT},
        workload,
        check=True,
        forecasting=settings,
    )
    recorder = simulate(scenario, PolicySettings("fcfs", keepalive, provisioning=policy))
    (flow,) = recorder.flows.values()
    return sum(number for start, number in flow.starts.items() if start.name == "COLD")


def test_regular_calls_find_a_sandbox_once_the_forecaster_has_seen_some_of_them():
    assert colds("none", keepalive="fixed_ttl") == CALLS
    assert colds("counts", keepalive="fixed_ttl") < CALLS / 3
    assert colds("clairvoyant", keepalive="fixed_ttl") == 1  # the first is at the very beginning


def test_forecasts_are_left_out_if_no_policy_wants_them():
    assert colds("counts", policy="none", keepalive="fixed_ttl") == CALLS


def test_equal_simulations_with_forecasts_are_equal():
    assert colds("counts") == colds("counts")


def test_the_clairvoyant_forecaster_knows_the_next_step_and_how_many_run_at_once():
    arrivals = [Arrival(at, "report", run_s=2.0) for at in (0, 10, 11, 11.5, 100)]
    source = ClairvoyantForecaster(ListedWorkload(arrivals), {"report": REPORT}, 60)
    (row,) = source.forecast(5.0)
    assert (row.function, row.chance, row.high) == ("report", 1.0, 3)
    assert source.forecast(20.0) == ()
    assert source.forecast(50.0)[0].high == 1


@pytest.mark.parametrize("name", ["counts", "clairvoyant"])
def test_ticks_end_with_the_last_arrival(name):
    workload = ListedWorkload([Arrival(0, "report"), Arrival(5.0, "report")])
    scenario = Scenario(
        [DeviceSpec("gpu-0", memory_bytes=16 * GIB)], {"report": REPORT}, workload, forecasting=ForecastSettings(name)
    )
    ended = []
    simulate(scenario, PolicySettings("fcfs", provisioning="forecast"), on_end=ended.append)
    assert len(ended) == 2


def version(folder, **fields):
    """Return the folder of a version without networks."""
    registry = registry_of(folder)
    card = DemandCard(version=1, created=0, winner=CHOSEN, accepted=True, why="", scores={}, **fields)
    registry.add(card, {})
    return registry.folder(1)


def test_a_trained_version_forecasts_if_its_steps_are_those_of_the_policy(tmp_path):
    assert colds(version(tmp_path), keepalive="fixed_ttl") == colds("counts", keepalive="fixed_ttl")
    with pytest.raises(InputError, match=r"--forecasting: version 1 forecasts steps of 10 s.*forecast.step_s=10"):
        colds(version(tmp_path / "other", step_s=10.0))


def test_an_unknown_forecaster_and_a_damaged_version_are_refused(tmp_path):
    with pytest.raises(InputError, match="--forecasting: 'crystal' is neither none, counts, clairvoyant"):
        parse_forecasting("crystal")
    folder = version(tmp_path)
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match="--forecasting: version 1"):
        parse_forecasting(str(folder))
