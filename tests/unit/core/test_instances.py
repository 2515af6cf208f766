"""A function may limit its own sandboxes. Its other calls are held back, where they delay no other function."""

import pytest
from msgspec.structs import replace

from aliquot.core.commands import Dispatch, Fail, StartSandbox, StopSandbox
from aliquot.core.errors import EventError
from aliquot.core.events import FunctionDeployed, FunctionRemoved, InvocationCancelled, SandboxLost
from aliquot.core.model import DEFAULT_TENANT
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type

CPU = device("cpu", kind="cpu", memory_bytes=None, concurrency=4)


def bounded(instances, name="few"):
    return replace(function(name, share=0, memory_bytes=0), instances=instances)


def started(harness):
    return [command.function for command in of_type(StartSandbox, harness.log)]


def test_no_more_sandboxes_start_than_the_function_may_have():
    harness = Harness("fcfs", devices=[CPU], functions=[bounded(2)])
    commands = harness.call(*["few"] * 4)
    assert len(of_type(StartSandbox, commands)) == 2
    following = harness.run_all(commands)
    assert [command.invocation for command in of_type(Dispatch, following)] == ["2", "3"]
    assert len(started(harness)) == 2


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_calls_held_back_do_not_delay_other_functions(policy):
    harness = Harness(policy, devices=[CPU], functions=[bounded(1), function("many", share=0, memory_bytes=0)])
    harness.call(*["few"] * 50, *["many"] * 50)
    busy = harness.flow("few").in_flight + harness.flow("many").in_flight
    assert (harness.flow("few").in_flight, busy) == (1, 4)


def test_a_call_that_is_held_back_can_be_cancelled():
    harness = Harness("fcfs", devices=[CPU], functions=[bounded(1)])
    commands = harness.call("few", "few", "few")
    assert of_type(Fail, harness.send(InvocationCancelled("1", "nobody wants it"))) == [Fail("1", "nobody wants it")]
    assert [command.invocation for command in of_type(Dispatch, harness.run_all(commands))] == ["2"]


def test_a_lost_sandbox_admits_the_next_call():
    harness = Harness("fcfs", devices=[CPU], functions=[bounded(1)])
    harness.ready(harness.call("few", "few"))
    commands = harness.send(SandboxLost(1, "killed"))
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["1"]


def test_removing_a_function_fails_its_calls_held_back():
    harness = Harness("fcfs", devices=[CPU], functions=[bounded(1)])
    harness.call("few", "few", "few")
    commands = harness.send(FunctionRemoved(DEFAULT_TENANT, "few"))
    assert [command.invocation for command in of_type(Fail, commands)] == ["1", "2"]


def test_a_newer_version_may_have_more_or_fewer_instances():
    harness = Harness("fcfs", devices=[replace(CPU, concurrency=2)], functions=[bounded(4)])
    harness.call(*["few"] * 5)
    flow = harness.flow("few")
    assert (flow.in_flight, flow.queued, list(flow.held_back)) == (2, 2, ["4"])
    harness.send(FunctionDeployed(DEFAULT_TENANT, bounded(1)))
    assert (flow.queued, list(flow.held_back)) == (0, ["2", "3", "4"])
    harness.send(FunctionDeployed(DEFAULT_TENANT, bounded(None)))
    assert (flow.queued, len(flow.held_back)) == (3, 0)


def test_an_idle_sandbox_on_a_full_device_is_stopped_for_one_on_a_free_device():
    devices = [device(name, concurrency=1, memory_bytes=16 * GIB) for name in ("gpu-1", "gpu-2")]
    harness = Harness("fcfs", devices=devices, functions=[replace(function("few"), instances=1), function("other")])
    harness.run_all(harness.call("few"))
    (first,) = harness.flow("few").sandboxes
    harness.ready(harness.call("other", "other"))  # both devices are in use now
    assert not of_type(Dispatch, harness.call("few"))
    (elsewhere,) = [
        one.id for one in harness.scheduler.invocations.values() if one.device is not None and one.device.index == 1
    ]
    commands = harness.finish(elsewhere)
    assert [command.sandbox for command in of_type(StopSandbox, commands)] == [first]
    assert [command.place for command in of_type(Dispatch, commands)] == [("gpu-2",)]
    assert len(harness.flow("few").sandboxes) == 1


def test_instances_must_be_one_or_more():
    harness = Harness("fcfs", devices=[CPU])
    with pytest.raises(EventError, match="instances 0 is below 1"):
        harness.send(FunctionDeployed(DEFAULT_TENANT, bounded(0)))
