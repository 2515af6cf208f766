"""Memory that a function needs only while a call is in flight, and functions with one sandbox on each device."""

import pytest
from msgspec.structs import replace

from aliquot.core.commands import Reject, Run, StartSandbox, UnloadMemory
from aliquot.core.errors import EventError
from aliquot.core.events import FunctionDeployed, SandboxAdopted, SandboxLost
from aliquot.core.explaining import explain_wait
from aliquot.core.model import DEFAULT_TENANT
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, dispatched, of_type


def graph(name, *, memory=1, run=2, one_per_device=False):
    spec = function(name, memory_bytes=memory * GIB, share=0.3)
    return replace(spec, run_bytes=run * GIB, one_per_device=one_per_device)


def harness_with(*functions, memory=4, devices=1, policy="fcfs"):
    gpus = [device(f"gpu-{number}", memory_bytes=memory * GIB, concurrency=3) for number in range(1, devices + 1)]
    return Harness(policy, devices=gpus, functions=functions)


def resident(harness, name="gpu-1"):
    return harness.scheduler.registry.devices[name].resident_bytes


def test_a_call_holds_the_memory_of_its_run_until_it_ends():
    harness = harness_with(graph("a"))
    harness.ready(harness.call("a"))
    assert resident(harness) == 3 * GIB
    harness.finish("0")
    assert resident(harness) == GIB
    harness.call("a")
    assert resident(harness) == 3 * GIB


def test_a_resident_sandbox_waits_while_another_run_takes_the_memory():
    harness = harness_with(graph("a"), graph("b"))
    harness.run_all(harness.call("a"))
    assert dispatched(harness.call("b")) == [("1", "gpu-1", "cold")]
    assert dispatched(harness.call("a")) == []
    assert explain_wait(harness.scheduler.invocations["2"]).detail == (
        "gpu-1: 1024 MiB of memory can be freed, and it needs 3072"
    )
    harness.ready(harness.log[-3:])
    commands = harness.finish("1")
    assert dispatched(commands) == [("2", "gpu-1", "warm")]


def test_a_sandbox_is_no_room_for_its_own_run():
    """The graph takes 2 GiB and 1 GiB for a run; 1.5 GiB of another function run, so that 0.5 GiB are free."""
    other = function("other", memory_bytes=3 * GIB // 2, share=0.3)
    harness = harness_with(graph("a", memory=2, run=1), other)
    harness.run_all(harness.call("a"))
    harness.ready(harness.call("other"))
    assert dispatched(harness.call("a")) == []
    assert dispatched(harness.finish("1")) == [("2", "gpu-1", "warm")]
    assert of_type(UnloadMemory, harness.log)


def test_others_are_swapped_out_for_the_memory_of_a_run():
    harness = harness_with(graph("a"), function("idle", memory_bytes=2 * GIB, share=0.3))
    harness.run_all(harness.call("a"))
    harness.run_all(harness.call("idle"))
    commands = harness.call("a")
    assert [type(command).__name__ for command in commands] == ["UnloadMemory", "Dispatch", "Run"]


def test_a_lost_sandbox_gives_the_memory_of_its_run_back():
    harness = harness_with(graph("a"))
    harness.ready(harness.call("a"))
    harness.send(SandboxLost(1, "killed"))
    assert resident(harness) == 0


def test_a_function_that_fits_only_without_its_run_is_refused():
    harness = harness_with(graph("a", memory=3, run=2))
    (rejected,) = harness.call("a")
    assert isinstance(rejected, Reject)
    assert f"needs {5 * GIB} bytes of {4 * GIB}, {2 * GIB} of them while it runs" in rejected.reason


def test_a_sandbox_that_runs_is_adopted_with_the_memory_of_its_run():
    harness = harness_with(graph("a"), memory=2)
    with pytest.raises(EventError, match="no room"):
        harness.send(SandboxAdopted(7, DEFAULT_TENANT, "a", ("gpu-1",), invocation="x"))


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_function_has_one_sandbox_on_each_device_if_it_says_so(policy):
    harness = harness_with(graph("a", run=0, one_per_device=True), devices=2, policy=policy)
    harness.call("a", "a", "a", "a")
    started = of_type(StartSandbox, harness.log)
    assert len({command.place for command in started}) == len(started)
    harness.run_all(harness.log)
    harness.send(FunctionDeployed(DEFAULT_TENANT, graph("a", run=0)))
    assert harness.flow("a").sandboxes_on == {}


def test_a_call_waits_for_the_busy_sandbox_of_its_device():
    harness = harness_with(graph("a", run=0, one_per_device=True))
    harness.ready(harness.call("a"))
    assert dispatched(harness.call("a")) == []
    assert "one on each device" in explain_wait(harness.scheduler.invocations["1"]).detail
    assert len(of_type(Run, harness.finish("0"))) == 1


def test_run_bytes_below_zero_are_refused():
    harness = harness_with()
    with pytest.raises(EventError, match="run_bytes -1 is below 0"):
        harness.send(FunctionDeployed(DEFAULT_TENANT, replace(function("a"), run_bytes=-1)))
