"""Sandboxes that are started ahead of calls: their rights, their limits and their ends."""

from msgspec.structs import replace

from aliquot.core.commands import Purpose, StartSandbox, StopSandbox, UnloadMemory
from aliquot.core.events import FunctionDeployed, FunctionRemoved, HostMemorySet, SandboxLost
from aliquot.core.units import GIB
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type


def start_ahead(harness, name, sandboxes=1, tenant="default"):
    """Start sandboxes of a function ahead, and return the commands that say so."""
    provisioner = harness.scheduler.provisioner
    provisioner.start(harness.flow(name, tenant), sandboxes, "a test expects calls", now=harness.now)
    return of_type(StartSandbox, harness.send())


def large_device(functions, *, concurrency=4, **options):
    return Harness(devices=[device(memory_bytes=10 * GIB, concurrency=concurrency)], functions=functions, **options)


def test_a_sandbox_started_ahead_serves_the_next_call_warm():
    harness = large_device([function("f")])
    (start,) = start_ahead(harness, "f")
    assert (start.purpose, start.invocation, start.reason) == (Purpose.HOLD, "", "a test expects calls")
    harness.ready([start])
    assert dispatched(harness.call("f")) == [("0", "gpu-1", "warm")]


def test_a_call_that_comes_while_the_sandbox_starts_waits_for_it_instead_of_starting_another():
    harness = large_device([function("f")])
    start_ahead(harness, "f")
    commands = harness.call("f")
    assert dispatched(commands) == [("0", "gpu-1", "cold")]
    assert not of_type(StartSandbox, commands)


def test_the_time_of_a_start_ahead_is_learned():
    harness = large_device([function("f")])
    harness.ready(start_ahead(harness, "f"), at=3)
    assert harness.flow("f").start_estimate_s == 3


def test_a_call_takes_the_memory_of_a_sandbox_that_still_starts_ahead_in_the_same_step():
    harness = large_device([function("f", memory_bytes=GIB), function("whole", memory_bytes=10 * GIB)])
    (start,) = start_ahead(harness, "f")
    commands = harness.call("whole")
    (stop,) = of_type(StopSandbox, commands)
    assert (stop.sandbox, stop.room_for) == (start.sandbox, "0")
    assert dispatched(commands) == [("0", "gpu-1", "cold")]


def test_unused_sandboxes_make_room_before_idle_ones_and_those_of_the_callers_tenant_first():
    harness = large_device([function("idle"), function("f"), function("large", memory_bytes=7 * GIB)])
    harness.send(
        FunctionDeployed("ann", function("f")), FunctionDeployed("ann", function("large", memory_bytes=8 * GIB))
    )
    harness.run_all(harness.call("idle"))
    others = start_ahead(harness, "f")
    own = start_ahead(harness, "f", tenant="ann")
    commands = harness.call("large", tenant="ann")
    assert [stop.sandbox for stop in of_type(StopSandbox, commands)] == [own[0].sandbox]
    harness.run_all(commands)
    commands = harness.call("large")
    assert [stop.sandbox for stop in of_type(StopSandbox, commands)] == [others[0].sandbox]
    assert of_type(UnloadMemory, commands)


def test_nothing_is_evicted_for_a_start_ahead():
    harness = large_device([function("idle", memory_bytes=9.5 * GIB), function("f")])
    harness.run_all(harness.call("idle"))
    assert start_ahead(harness, "f") == []


def test_unused_sandboxes_take_a_part_of_a_device_and_a_tenant_half_of_that():
    harness = large_device([function("f")], concurrency=8)
    harness.send(FunctionDeployed("ann", function("f")), FunctionDeployed("bob", function("f")))
    counts = [len(start_ahead(harness, "f", 9, tenant)) for tenant in ("default", "ann", "bob")]
    assert counts == [1, 1, 1]  # 3 of 10 GiB, and 1.5 for each tenant


def test_one_sandbox_at_a_time_starts_ahead_on_a_device_with_two_slots():
    harness = Harness(devices=[device(memory_bytes=None, concurrency=2)], functions=[function("f")])
    first = start_ahead(harness, "f", 2)
    assert len(first) == 1
    harness.ready(first)
    assert len(start_ahead(harness, "f", 2)) == 1


def test_the_memory_of_the_host_and_the_functions_limit_bound_starts_ahead():
    spec = replace(function("f", share=0), host_bytes=GIB)
    harness = Harness(devices=[device("cpu", kind="cpu", memory_bytes=None, concurrency=16)], functions=[spec])
    harness.send(HostMemorySet(20 * GIB))
    assert len(start_ahead(harness, "f", 9)) == 3  # a tenant has half of 6 GiB
    few = Harness(devices=[device(memory_bytes=None, concurrency=8)], functions=[replace(function("f"), instances=1)])
    assert len(start_ahead(few, "f", 3)) == 1


def test_a_call_stops_unused_sandboxes_for_the_hosts_memory_first():
    specs = [replace(function(name, share=0), host_bytes=size * GIB) for name, size in (("f", 1), ("g", 1), ("h", 9))]
    harness = Harness(devices=[device("cpu", kind="cpu", memory_bytes=None, concurrency=16)], functions=specs)
    harness.send(HostMemorySet(10 * GIB))
    harness.run_all(harness.call("g"))
    (start,) = start_ahead(harness, "f")
    stops = of_type(StopSandbox, harness.call("h"))
    assert stops[0].sandbox == start.sandbox


def test_after_a_lost_start_no_other_is_tried_until_a_call_has_started_one():
    harness = large_device([function("f")])
    (start,) = start_ahead(harness, "f")
    harness.send(SandboxLost(start.sandbox, "its import failed"))
    assert start_ahead(harness, "f") == []
    harness.run_all(harness.call("f"))
    harness.send(SandboxLost(2, "it ran out of memory"))
    assert len(start_ahead(harness, "f")) == 1


def test_a_new_version_or_the_end_of_a_function_stops_what_was_started_ahead():
    harness = large_device([function("f"), function("g")])
    first = start_ahead(harness, "f") + start_ahead(harness, "g")
    stopped = harness.send(FunctionDeployed("default", function("f", run_s=2)), FunctionRemoved("default", "g"))
    assert [stop.sandbox for stop in of_type(StopSandbox, stopped)] == [start.sandbox for start in first]
