"""The memory of the host is shared by all sandboxes, and idle ones are stopped when it is short."""

import pytest
from msgspec.structs import replace

from aliquot.core.commands import Reject, StartSandbox, StopSandbox
from aliquot.core.errors import EventError
from aliquot.core.events import DeviceAdded, FunctionDeployed, HostMemorySet
from aliquot.core.model import DEFAULT_TENANT
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type


def test_idle_sandboxes_are_stopped_when_the_hosts_memory_is_needed():
    hungry = [replace(function(name, share=0), host_bytes=GIB) for name in "abc"]
    harness = Harness("fcfs", devices=[device("cpu", kind="cpu", memory_bytes=None)])
    harness.send(HostMemorySet(2 * GIB))
    harness.send(*(FunctionDeployed(DEFAULT_TENANT, spec) for spec in hungry))
    for name in "ab":
        harness.run_all(harness.call(name))
    commands = harness.call("c")
    assert [type(command).__name__ for command in commands[:2]] == ["StopSandbox", "StartSandbox"]
    assert commands[0].sandbox == 1
    assert "host's memory" in commands[0].reason
    assert harness.scheduler.registry.nodes[""].host.claimed == 2 * GIB


def hungry_scheduler(sizes, policy="fair_resident", limit=8 * GIB):
    """Make a scheduler whose functions claim so many GiB, by tenant and name."""
    harness = Harness(policy, devices=[device("cpu", kind="cpu", memory_bytes=None, concurrency=8)])
    harness.send(HostMemorySet(limit))
    for (tenant, name), size in sizes.items():
        harness.send(FunctionDeployed(tenant, replace(function(name, share=0), host_bytes=size * GIB)))
    return harness


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_start_waits_while_running_sandboxes_claim_the_hosts_memory(policy):
    harness = hungry_scheduler({("default", "a"): 5, ("default", "b"): 4}, policy)
    first = harness.call("a")
    assert of_type(StartSandbox, harness.call("b")) == []
    commands = harness.run_all(first)
    assert [type(command).__name__ for command in commands[-3:]] == ["StopSandbox", "StartSandbox", "Dispatch"]
    assert harness.scheduler.registry.nodes[""].host.claimed == 4 * GIB


def test_a_start_that_waits_for_memory_is_tried_when_a_sandbox_on_another_device_ends():
    harness = hungry_scheduler({("default", "a"): 5})
    harness.send(DeviceAdded(device("gpu-1")), FunctionDeployed("default", replace(function("b"), host_bytes=4 * GIB)))
    first = harness.call("a")
    assert of_type(StartSandbox, harness.call("b")) == []
    assert len(of_type(StartSandbox, harness.run_all(first))) == 1


def test_a_function_that_claims_more_than_the_host_has_is_rejected():
    harness = hungry_scheduler({("default", "a"): 9})
    (rejected,) = harness.call("a")
    assert isinstance(rejected, Reject)
    assert rejected.reason == f"its sandboxes claim {9 * GIB} bytes of host memory each, and there are {8 * GIB}"


def test_a_tenants_own_idle_sandboxes_are_stopped_before_those_of_others():
    harness = hungry_scheduler({("ann", "a"): 2, ("bob", "b"): 2, ("bob", "c"): 4, ("ann", "d"): 2})
    for tenant, name in [("ann", "a"), ("bob", "b"), ("bob", "c")]:
        harness.run_all(harness.call(name, tenant=tenant))
    harness.run_all(harness.call("d", tenant="ann"))  # ann's own is older, bob's would be enough, too
    assert [command.sandbox for command in of_type(StopSandbox, harness.log)] == [1]
    harness.run_all(harness.call("a", tenant="ann"))
    assert [command.sandbox for command in of_type(StopSandbox, harness.log)] == [1, 4]


def test_a_tenants_running_sandboxes_leave_a_quarter_of_the_memory_to_others():
    sizes = {("ann", name): 3 for name in "abc"} | {("bob", "d"): 2}
    harness = hungry_scheduler(sizes)
    assert len(of_type(StartSandbox, harness.call("a", "b", "c", tenant="ann"))) == 2
    assert len(of_type(StartSandbox, harness.call("d", tenant="bob"))) == 1


def test_a_tenant_alone_may_use_all_of_the_memory():
    harness = hungry_scheduler({("ann", name): 4 for name in "ab"})
    assert len(of_type(StartSandbox, harness.call("a", "b", tenant="ann"))) == 2


def test_the_hosts_memory_must_be_set_before_the_first_sandbox():
    harness = Harness(
        "fcfs", devices=[device("cpu", kind="cpu", memory_bytes=None)], functions=[function("a", share=0)]
    )
    harness.call("a")
    with pytest.raises(EventError, match="before the first sandbox"):
        harness.send(HostMemorySet(GIB))
