"""Holds for forecast demand: forecast in, starts and stops out."""

from math import inf, nan

import pytest
from msgspec.structs import replace

from aliquot.core.commands import StartSandbox, StopSandbox, WakeAt
from aliquot.core.errors import EventError
from aliquot.core.events import (
    DemandForecast,
    DemandRow,
    DeviceAdded,
    DeviceLost,
    FunctionDeployed,
    FunctionRemoved,
    SandboxLost,
    Woke,
)
from aliquot.core.units import GIB
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type

VALID_S = 180


def harness(provisioning="forecast", **params):
    return Harness(
        devices=[device(memory_bytes=40 * GIB, concurrency=8)],
        functions=[function("f"), function("g")],
        provisioning=provisioning,
        params={provisioning: params} if params else {},
    )


def forecast(*rows, valid_s=VALID_S):
    return DemandForecast(tuple(rows), valid_s)


def row(chance, *, name="f", high=1.0, measured=0.0, window_s=60.0):
    return DemandRow("default", name, chance, window_s, 0.0, min(0.5, high), high, measured, "last")


def let_start(it, commands):
    """Let starts end after the two seconds that they are declared to take."""
    it.now += 2
    it.ready(commands)


def test_a_likely_call_has_a_sandbox_started_ahead_with_the_reason():
    it = harness()
    (start,) = of_type(StartSandbox, it.send(forecast(row(0.62))))
    assert (start.function, start.invocation, start.purpose) == ("f", "", "hold")
    assert start.reason == "the chance of a call in 60 s is 0.62 and saves 2 s, 1 GiB at the price 0.02"
    let_start(it, [start])
    assert dispatched(it.call("f"))[0][2] == "warm"


def test_an_unlikely_call_has_none_and_one_that_is_held_stays_down_to_a_part_of_the_price():
    it = harness()
    assert not of_type(StartSandbox, it.send(forecast(row(0.009))))
    let_start(it, it.send(forecast(row(0.011))))
    assert not of_type(StopSandbox, it.send(forecast(row(0.004))))
    (stop,) = of_type(StopSandbox, it.send(forecast(row(0.002))))
    assert "the chance of a call in 60 s is 0.002" in stop.reason


def test_as_many_are_held_as_are_needed_at_once_with_the_upper_quantile():
    it = harness()
    commands = it.send(forecast(row(0.9, high=2.3)))
    assert len(of_type(StartSandbox, commands)) == 3
    let_start(it, commands)
    assert len(of_type(StopSandbox, it.send(forecast(row(0.9, high=1.0))))) == 2


def test_reactive_follows_what_was_measured():
    it = harness("reactive")
    assert len(of_type(StartSandbox, it.send(forecast(row(0.0, measured=2.0))))) == 3
    assert len(of_type(StopSandbox, it.send(forecast(row(1.0, measured=0.0))))) == 3


def test_none_holds_nothing():
    assert not of_type(StartSandbox, harness("none").send(forecast(row(1.0, measured=5.0, high=5.0))))


def test_what_is_held_stops_when_no_forecast_renews_it():
    it = harness()
    commands = it.send(forecast(row(0.5)))
    let_start(it, commands)
    assert [wake.at for wake in of_type(WakeAt, commands)] == [VALID_S]
    it.send(forecast(row(0.5)), at=100)
    assert not of_type(StopSandbox, it.send(Woke(), at=VALID_S))
    (stop,) = of_type(StopSandbox, it.send(Woke(), at=100 + VALID_S))
    assert stop.reason == "its forecast has lapsed"


def test_a_sandbox_that_was_used_belongs_to_keep_alive():
    it = harness()
    let_start(it, it.send(forecast(row(0.5))))
    commands = it.call("f")
    it.finish(dispatched(commands)[0][0])
    assert not of_type(StopSandbox, it.send(forecast(row(0.0))))
    assert not of_type(StopSandbox, it.send(Woke(), at=VALID_S))


@pytest.mark.parametrize(
    "event",
    [
        forecast(row(nan)),
        forecast(row(-0.1)),
        forecast(row(1.1)),
        forecast(row(0.5, window_s=0)),
        forecast(row(0.5, high=inf)),
        forecast(row(0.5, high=nan)),
        forecast(DemandRow("default", "f", 0.5, 60, 3.0, 2.0, 1.0, 0)),
        forecast(row(0.5, measured=-1)),
        forecast(row(0.5), valid_s=nan),
        forecast(row(0.5), valid_s=0),
        forecast(*[row(0.5)] * 201),
    ],
)
def test_impossible_forecasts_are_refused_and_change_nothing(event):
    it = harness()
    with pytest.raises(EventError, match="DemandForecast"):
        it.send(event)
    assert not it.scheduler.pool.sandboxes


def test_forecasts_of_functions_that_are_gone_are_left_out():
    it = harness()
    it.send(FunctionRemoved("default", "f"))
    commands = it.send(forecast(row(0.9), row(0.9, name="g")))
    assert [start.function for start in of_type(StartSandbox, commands)] == ["g"]


def test_a_start_that_fails_is_not_repeated_by_the_next_forecast():
    it = harness()
    (start,) = of_type(StartSandbox, it.send(forecast(row(0.9))))
    it.send(SandboxLost(start.sandbox, "an import failed"))
    assert not of_type(StartSandbox, it.send(forecast(row(0.9))))


def test_a_device_that_is_lost_with_holds_harms_no_call_and_another_one_holds_again():
    it = Harness(
        devices=[device("gpu-1", memory_bytes=40 * GIB, concurrency=8)],
        functions=[function("f")],
        provisioning="forecast",
    )
    let_start(it, it.send(forecast(row(0.9))))
    it.send(DeviceAdded(device("gpu-2", memory_bytes=40 * GIB, concurrency=8)))
    it.send(DeviceLost("gpu-1"))
    (start,) = of_type(StartSandbox, it.send(forecast(row(0.9))))
    assert start.place == ("gpu-2",)
    it.ready([start])
    assert dispatched(it.call("f"))[0][1:] == ("gpu-2", "warm")


def test_two_tenants_who_expect_all_share_what_may_be_held_and_keep_no_call_waiting():
    it = Harness(devices=[device(memory_bytes=40 * GIB, concurrency=64)], provisioning="forecast")
    it.send(*(FunctionDeployed(tenant, function("f")) for tenant in ("ann", "bob")))
    rows = [DemandRow(tenant, "f", 1.0, 60, 0, 30, 60, 0) for tenant in ("ann", "bob")]
    started = of_type(StartSandbox, it.send(DemandForecast(tuple(rows), VALID_S)))
    started += of_type(StartSandbox, it.send(DemandForecast(tuple(rows), VALID_S), at=5))
    held = [start.tenant for start in started]
    assert held.count("ann") == held.count("bob") == 6  # each 15 % of 40 GiB
    assert len(dispatched(it.call(*["f"] * 30, tenant="ann"))) == 30


def test_when_the_expected_call_has_come_no_other_is_held_for_in_its_window():
    it = harness()
    expected = replace(row(0.9), ends_s=30, later=(0.0, 0.0))
    let_start(it, it.send(forecast(expected)))
    commands = it.call("f")
    it.finish(dispatched(commands)[0][0])
    (sandbox,) = it.scheduler.pool.sandboxes
    it.send(SandboxLost(sandbox, "keep-alive"))
    assert not of_type(StartSandbox, it.send(forecast(replace(expected, ends_s=20)), at=12))
    assert of_type(StartSandbox, it.send(forecast(replace(expected, ends_s=60)), at=32))  # the next window


def hold_again(it, times, *, call=False):
    """Forecast so many windows, each with a call or without. Return how many sandboxes were held."""
    started = 0
    for _ in range(times):
        commands = it.send(forecast(row(0.9), valid_s=30), at=it.now + 60)
        started += len(of_type(StartSandbox, commands))
        let_start(it, commands)
        if call:
            commands = it.call("f", at=it.now + 1)
            let_start(it, commands)
            it.finish(dispatched(commands)[0][0])
        it.send(Woke(), at=it.now + 31)
        it.send(*(SandboxLost(sandbox, "keep-alive") for sandbox in list(it.scheduler.pool.sandboxes)))
    return started


def test_a_flow_whose_holds_are_not_used_is_held_for_on_paper_until_they_would_be():
    it = harness(price="1")
    assert hold_again(it, 20) == 20
    assert hold_again(it, 10) == 0  # none of the last 20 was used
    assert hold_again(it, 30, call=True) > 10  # on paper they pay again
