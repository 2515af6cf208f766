"""Functions that declare `warm`: so many of their sandboxes are held ready, with the rights of unused ones."""

import pytest
from msgspec.structs import replace

from aliquot.core.commands import Purpose, StartSandbox, StopSandbox
from aliquot.core.events import FunctionDeployed, FunctionRemoved, SandboxLost, Woke
from aliquot.core.units import GIB
from aliquot.testing import Harness, device, function
from aliquot.testing.chaos import ChaosShell
from aliquot.testing.harness import dispatched, of_type


def held(count=2, **needs):
    return FunctionDeployed("default", replace(function("f", **needs), warm=count))


def roomy(**options):
    return Harness(devices=[device(memory_bytes=None, concurrency=8)], **options)


def starts(commands):
    return of_type(StartSandbox, commands)


def test_a_deployment_starts_what_is_held_and_calls_find_it_warm():
    harness = roomy()
    commands = harness.send(held())
    assert [start.purpose for start in starts(commands)] == [Purpose.HOLD] * 2
    assert starts(commands)[0].reason == "2 are held ready"
    harness.ready(commands)
    calls = harness.call("f", "f")
    assert [start for _, _, start in dispatched(calls)] == ["warm", "warm"]
    assert starts(harness.run_all(calls)) == []


def test_keep_alive_leaves_those_that_are_held():
    params = {"fixed_ttl": {"ttl_s": "10"}}
    harness = roomy(keepalive="fixed_ttl", params=params)
    harness.ready(harness.send(held(1)))
    harness.run_all(harness.call("f", "f", "f"))
    stopped = of_type(StopSandbox, harness.send(Woke(), at=100))
    assert len(stopped) == 2
    assert len(harness.flow("f").sandboxes) == 1
    plain = roomy(keepalive="fixed_ttl", params=params, functions=[function("f")])
    plain.run_all(plain.call("f"))
    assert len(of_type(StopSandbox, plain.send(Woke(), at=100))) == 1


def test_one_that_is_lost_after_it_was_used_is_replaced():
    harness = roomy()
    harness.ready(harness.send(held(1)))
    harness.run_all(harness.call("f"))
    (start,) = starts(harness.send(SandboxLost(1, "its process has ended")))
    assert start.purpose is Purpose.HOLD


def test_one_that_is_lost_unused_is_not_started_again_before_a_call_has_started_one():
    harness = roomy()
    harness.send(held(1))
    assert starts(harness.send(SandboxLost(1, "its set-up failed"))) == []
    assert starts(harness.send(Woke())) == []
    assert len(starts(harness.call("f"))) == 1


def test_a_call_takes_the_room_and_it_is_filled_again_when_it_is_free():
    large = function("large", memory_bytes=10 * GIB)
    harness = Harness(devices=[device(memory_bytes=10 * GIB, concurrency=4)], functions=[large])
    (start,) = starts(harness.send(held(1, memory_bytes=GIB)))
    commands = harness.call("large")
    assert [stop.sandbox for stop in of_type(StopSandbox, commands)] == [start.sandbox]
    assert [command.purpose for command in starts(commands)] == [Purpose.CALL]
    harness.run_all(commands)
    assert starts(harness.send(Woke())) == []  # nothing that is idle is evicted for it
    again = harness.send(FunctionRemoved("default", "large"))
    assert [command.function for command in starts(again)] == ["f"]


def test_what_is_held_ends_with_the_declaration_and_with_the_function():
    harness = roomy()
    harness.ready(harness.send(held()))
    commands = harness.send(held(0))
    assert (len(of_type(StopSandbox, commands)), starts(commands)) == (2, [])
    harness.ready(harness.send(held(1)))
    commands = harness.send(FunctionRemoved("default", "f"))
    assert (len(of_type(StopSandbox, commands)), starts(commands)) == (1, [])
    assert starts(harness.send(Woke())) == []


@pytest.mark.parametrize("keepalive", ["none", "fixed_ttl", "adaptive", "hazard"])
def test_functions_that_are_held_survive_a_bad_day(keepalive):
    functions = [replace(function("a"), warm=2), replace(function("b", share=0.5), warm=1), function("c")]
    for seed in range(6):
        shell = ChaosShell(
            "fair_resident", devices=[device(concurrency=3)], functions=functions, seed=seed, keepalive=keepalive
        )
        shell.run_steps(120)
