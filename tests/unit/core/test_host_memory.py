"""The memory of the host is shared by all sandboxes, and idle ones are stopped when it is short."""

import pytest
from msgspec.structs import replace

from aliquot.core.commands import StartSandbox
from aliquot.core.errors import EventError
from aliquot.core.events import FunctionDeployed, HostMemorySet
from aliquot.core.model import DEFAULT_TENANT
from aliquot.core.units import GIB
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
    assert harness.scheduler.pool.host_bytes == 2 * GIB


def test_running_sandboxes_may_claim_more_than_the_host_has():
    hungry = replace(function("a", share=0), host_bytes=3 * GIB)
    harness = Harness("fcfs", devices=[device("cpu", kind="cpu", memory_bytes=None)])
    harness.send(HostMemorySet(2 * GIB))
    harness.send(FunctionDeployed(DEFAULT_TENANT, hungry))
    assert len(of_type(StartSandbox, harness.call("a"))) == 1


def test_the_hosts_memory_must_be_set_before_the_first_sandbox():
    harness = Harness(
        "fcfs", devices=[device("cpu", kind="cpu", memory_bytes=None)], functions=[function("a", share=0)]
    )
    harness.call("a")
    with pytest.raises(EventError, match="before the first sandbox"):
        harness.send(HostMemorySet(GIB))
