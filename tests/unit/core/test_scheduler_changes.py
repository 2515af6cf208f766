"""The scheduler when sandboxes are lost, calls are cancelled, and functions and devices come and go."""

from one_device import one_device

from aliquot.core.commands import (
    Complete,
    Fail,
    Reject,
    Run,
    StartSandbox,
    StopSandbox,
)
from aliquot.core.events import (
    DeviceAdded,
    DeviceLost,
    FunctionDeployed,
    FunctionRemoved,
    InvocationCancelled,
    SandboxLost,
    SandboxStarted,
)
from aliquot.core.units import GIB
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type


def test_a_lost_sandbox_fails_its_invocation_and_frees_its_place():
    harness = one_device()
    harness.call("f", "f")
    commands = harness.send(SandboxLost(1, "killed"))
    assert Fail("0", "killed") in commands
    assert dispatched(commands) == [("1", "gpu-1", "cold")]


def test_a_lost_idle_sandbox_is_simply_gone():
    harness = one_device()
    harness.run_all(harness.call("f"))
    assert harness.send(SandboxLost(1, "killed")) == []
    assert dispatched(harness.call("f")) == [("1", "gpu-1", "cold")]


def test_a_queued_invocation_can_be_cancelled():
    harness = one_device()
    harness.call("f", "f", "g")
    assert harness.send(InvocationCancelled("1")) == [Fail("1", "cancelled")]
    assert dispatched(harness.run_all([StartSandbox(1, "default", "f", ("gpu-1",), "0")])) == [("2", "gpu-1", "cold")]


def test_cancelling_a_running_invocation_stops_its_sandbox():
    harness = one_device()
    harness.ready(harness.call("f"))
    commands = harness.send(InvocationCancelled("0", "asked to"))
    assert commands == [Fail("0", "asked to"), StopSandbox(1, "invocation 0: asked to")]


def test_cancelling_an_invocation_whose_sandbox_is_starting_leaves_the_sandbox_to_the_next():
    harness = one_device()
    harness.call("f")
    assert harness.send(InvocationCancelled("0")) == [Fail("0", "cancelled")]
    assert dispatched(harness.call("f")) == [("1", "gpu-1", "cold")]
    assert harness.send(SandboxStarted(1)) == [Run("1", 1)]


def test_cancelling_an_ended_invocation_is_late_not_wrong():
    harness = one_device()
    harness.run_all(harness.call("f"))
    assert harness.send(InvocationCancelled("0")) == []


def test_a_new_version_of_a_function_never_uses_an_old_sandbox():
    harness = one_device(concurrency=2)
    harness.run_all(harness.call("f", "f"))
    harness.call("f")  # takes one of the two slots
    commands = harness.send(FunctionDeployed("default", function("f", memory_bytes=2 * GIB)))
    assert [command.sandbox for command in of_type(StopSandbox, commands)] == [1]
    assert dispatched(harness.call("f")) == [("3", "gpu-1", "cold")]
    assert of_type(StopSandbox, harness.finish("2")) == [StopSandbox(2, "its function has a newer version")]


def test_removing_a_function_fails_waiting_calls_and_lets_running_ones_finish():
    harness = one_device()
    harness.ready(harness.call("f", "f"))
    assert harness.send(FunctionRemoved("default", "f")) == [Fail("1", "its function was removed")]
    assert harness.finish("0") == [StopSandbox(1, "its function was removed"), Complete("0")]
    assert harness.call("f") == [Reject("2", "tenant default has no function f")]


def test_a_function_that_no_longer_needs_a_gpu_moves_to_the_cpu():
    harness = Harness(devices=[device(), device("cpu-1", kind="cpu")], functions=[function("f")])
    harness.run_all(harness.call("f"))
    harness.send(FunctionDeployed("default", function("f", share=0)))
    assert dispatched(harness.call("f")) == [("1", "cpu-1", "cold")]


def test_a_lost_device_fails_its_calls_and_those_that_fit_nowhere_else():
    too_big = f"gpu-1: needs {3 * GIB} bytes of {GIB}; the largest that would fit is a share of 1 with {GIB} bytes"
    small, large = device("gpu-1", memory_bytes=GIB), device("gpu-2", memory_bytes=4 * GIB)
    harness = Harness(devices=[small, large], functions=[function("f"), function("big", memory_bytes=3 * GIB)])
    harness.ready(harness.call("big", "big", "f"))
    commands = harness.send(DeviceLost("gpu-2"))
    assert of_type(Fail, commands) == [
        Fail("0", "device gpu-2 was lost"),
        Fail("1", too_big),
    ]
    assert harness.call("big") == [Reject("3", too_big)]


def test_an_added_device_takes_waiting_calls():
    harness = one_device()
    harness.call("f", "f")
    assert dispatched(harness.send(DeviceAdded(device("gpu-2")))) == [("1", "gpu-2", "cold")]
