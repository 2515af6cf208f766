"""Calls that are known to come: started ahead of, told as capacity, and left the device that they need."""

from math import inf, nan

import pytest
from msgspec.structs import replace

from aliquot.core.commands import StartSandbox, StopSandbox, WakeAt, WantDevices
from aliquot.core.errors import EventError
from aliquot.core.events import CallExpected, DemandForecast, DemandRow, FunctionRemoved, SandboxLost, Woke
from aliquot.core.model import Times
from aliquot.core.units import GIB
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type

ALARM = "alarm nightly"


def harness(*functions, provisioning="forecast", **params):
    return Harness(
        devices=[device(memory_bytes=40 * GIB, concurrency=4)],
        functions=functions or [function("f")],
        provisioning=provisioning,
        params={provisioning: params} if params else {},
    )


def expect(at, name="f"):
    return CallExpected("default", name, at, ALARM)


def wakes(commands):
    return [command.at for command in of_type(WakeAt, commands)]


def test_a_sandbox_is_started_so_early_that_it_is_warm_when_a_known_call_comes():
    it = harness()
    assert wakes(it.send(expect(100))) == [97]  # a start takes 2 s, and may take half as long again
    (start,) = of_type(StartSandbox, it.send(Woke(), at=97))
    assert start.reason == "a call is known to come, by the alarm nightly, and 2 s are saved"
    it.ready([start], at=99)
    assert dispatched(it.call("f", at=100))[0][2] == "warm"


def test_a_sandbox_for_a_call_that_does_not_come_stops():
    it = harness()
    it.send(expect(100))
    commands = it.send(Woke(), at=97)
    it.ready(commands, at=99)
    it.send(Woke(), at=100)
    (stop,) = of_type(StopSandbox, it.send(Woke(), at=110))
    assert stop.reason == "the call that was expected did not come"
    assert it.flow("f").expected == ()
    assert not it.view().expected


def test_several_known_calls_of_a_function_are_kept_in_order():
    it = harness()
    for at in (100, 50, 100, 300):
        it.send(expect(at))
    assert it.flow("f").expected == (50, 100, 300)
    it.send(Woke(), at=60)
    assert it.flow("f").expected == (100, 300)


def test_nothing_is_started_by_a_policy_that_holds_nothing_or_if_it_does_not_pay():
    for it in (harness(provisioning="none"), harness(price="1000")):
        it.send(expect(100))
        assert not of_type(StartSandbox, it.send(Woke(), at=97))


def test_a_start_that_fails_ahead_of_a_known_call_harms_no_call():
    it = harness()
    it.send(expect(100))
    (start,) = of_type(StartSandbox, it.send(Woke(), at=97))
    it.send(SandboxLost(start.sandbox, "an import failed"))
    assert dispatched(it.call("f", at=100))[0][2] == "cold"


def test_a_known_call_of_a_removed_function_starts_nothing():
    it = harness()
    it.send(expect(100))
    it.send(FunctionRemoved("default", "f"))
    assert not it.send(Woke(), at=97)
    assert not it.send(expect(200))


@pytest.mark.parametrize("at", [nan, inf, 1e9])
def test_an_impossible_time_is_refused(at):
    with pytest.raises(EventError, match="cannot be expected"):
        harness().send(expect(at))


def row(chance, *, name="f", high=1.0, **more):
    return DemandRow("default", name, chance, 60.0, 0.0, min(1.0, high), high, 0.0, **more)


def test_a_start_that_takes_long_begins_before_the_window_of_its_call():
    slow = replace(function("f"), times=Times(1, 40, 0))
    it = harness(slow)
    likely_next = row(0.0, ends_s=50, later=(0.9, 0.0))
    assert not of_type(StartSandbox, it.send(DemandForecast((likely_next,), 180)))
    assert of_type(StartSandbox, it.send(DemandForecast((replace(likely_next, ends_s=30),), 180)))


def test_devices_are_wanted_for_all_that_is_foreseen_to_run_at_once_and_told_when_that_changes():
    it = harness(function("f", share=0.5), function("g"))
    both = (row(1.0, high=6), row(1.0, name="g", high=4))
    (want,) = of_type(WantDevices, it.send(DemandForecast(both, 180)))
    assert (want.kind, want.count, want.by_s) == ("gpu", 3, 60)
    assert want.reason == "2 functions need 3 with a chance of 95 %, 1 are there"
    assert it.scheduler.foresight.capacity.middle == {"gpu": 1}
    assert not of_type(WantDevices, it.send(DemandForecast(both, 180)))
    (want,) = of_type(WantDevices, it.send(DemandForecast((), 180), at=200))
    assert want.count == 0


FAST, SLOW = (replace(device(f"{kind}-1", concurrency=1), kind=kind) for kind in ("fast", "slow"))
ANYWHERE = function("anywhere", times_by_kind={"fast": Times(10, 0, 0), "slow": Times(14, 0, 0)})
NEEDS_FAST = function("needs", times_by_kind={"fast": Times(5, 0, 0), "slow": Times(40, 0, 0)})


def places(**params):
    it = Harness(
        "fair_resident",
        devices=[FAST, SLOW],
        functions=[ANYWHERE, NEEDS_FAST],
        provisioning="forecast",
        params={"fair_resident": params},
    )
    assert dispatched(it.call("anywhere"))[0][1] == "fast-1"
    it.run_all(it.log)
    return it


def test_a_call_with_a_choice_leaves_the_fast_device_to_one_that_is_known_to_come():
    it = places()
    it.send(CallExpected("default", "needs", 5, ALARM))
    assert dispatched(it.call("anywhere", at=1))[0][1] == "slow-1"


def test_it_keeps_the_fast_device_if_it_ends_before_or_foresight_is_off():
    early = places()
    early.send(CallExpected("default", "needs", 50, ALARM))
    assert dispatched(early.call("anywhere", at=1))[0][1] == "fast-1"
    off = places(foresee="false")
    off.send(CallExpected("default", "needs", 5, ALARM))
    assert dispatched(off.call("anywhere", at=1))[0][1] == "fast-1"
