"""Nodes that join, are suspected, drained, lost and return, and the calls on them."""

import pytest
from msgspec.structs import replace

from aliquot.core.commands import Complete, Dispatch, Fail, Fetch, Predict, Reject, Run, StartSandbox, StopSandbox
from aliquot.core.errors import EventError
from aliquot.core.events import (
    DatasetHeld,
    DatasetRemoved,
    DeviceAdded,
    DeviceLost,
    FetchEnded,
    FilesPredicted,
    FunctionDeployed,
    HostMemorySet,
    LikelyFile,
    NodeBack,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeSuspected,
    RunFinished,
    SandboxAdopted,
    Woke,
)
from aliquot.core.fit import misfit
from aliquot.core.model import NodeSpec
from aliquot.core.units import GIB, MIB
from aliquot.policies.queueing import QUEUEING
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type

NODE_WAIT_S = 300


def gpu(node, number=1, **options):
    return replace(device(f"{node}/gpu-{number}", **options), node=node)


def two_nodes(policy="fcfs", *, functions=None, **options):
    functions = [function("f")] if functions is None else functions
    return Harness(policy, devices=[gpu("a", **options), gpu("b", **options)], functions=functions)


def places(commands):
    return [place for _, place, _ in dispatched(commands)]


# --- no new work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [NodeSuspected("a"), NodeDraining("a")])
@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_suspected_or_draining_node_gets_no_new_work(policy, event):
    harness = two_nodes(policy)
    harness.run_all(harness.call("f"))
    harness.send(event)
    assert places(harness.call("f")) == ["b/gpu-1"]
    assert places(harness.call("f")) == []
    assert places(harness.send(NodeBack("a"))) == ["a/gpu-1"]


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_function_that_needs_the_head_runs_there_alone(policy):
    devices = [replace(gpu("b", concurrency=4), remote=True), gpu("", concurrency=1)]
    files = replace(function("files"), needs_head=True)
    harness = Harness(policy, devices=devices, functions=[files, function("plain")])
    assert places(harness.call("files")) == ["/gpu-1"]
    assert places(harness.call("files")) == []
    if policy in {"fair_resident", "mqfq_sticky"}:  # others keep an order over all devices
        assert places(harness.call("plain")) == ["b/gpu-1"]


def test_why_no_device_of_other_nodes_will_do_is_said():
    files = replace(function("files"), needs_head=True)
    assert "on another node, and this function needs the head" in misfit(files, [replace(gpu("b"), remote=True)])


def test_what_runs_on_a_suspected_node_may_still_end():
    harness = two_nodes()
    harness.ready(harness.call("f"))
    harness.send(NodeSuspected("a"))
    assert of_type(Complete, harness.finish("0")) == [Complete("0")]


def test_a_warm_sandbox_is_used_again_when_its_node_is_back():
    harness = two_nodes()
    harness.run_all(harness.call("f"))
    harness.send(NodeSuspected("a"))
    harness.send(NodeBack("a"))
    assert dispatched(harness.call("f")) == [("1", "a/gpu-1", "warm")]


def test_draining_stops_idle_sandboxes_at_once_and_busy_ones_at_their_end():
    harness = two_nodes(concurrency=2)
    harness.send(NodeSuspected("b"))
    harness.ready(harness.call("f", "f"))
    harness.finish("1")
    assert of_type(StopSandbox, harness.send(NodeDraining("a"))) == [StopSandbox(2, "node a is being drained")]
    assert of_type(StopSandbox, harness.finish("0")) == [StopSandbox(1, "node a is being drained")]


def test_calls_that_run_longer_than_the_time_for_draining_end():
    harness = two_nodes(concurrency=2)
    harness.send(NodeSuspected("b"))
    harness.ready(harness.call("f"))
    harness.call("f")  # its sandbox is still starting
    harness.send(NodeBack("b"), NodeDraining("a", until=60))
    commands = harness.send(Woke(), at=60)
    assert of_type(Fail, commands) == [Fail("0", "node a was drained, and its time is over")]
    assert dispatched(commands) == [("1", "b/gpu-1", "cold")]


# --- loss -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_lost_node_fails_what_ran_and_returns_what_did_not(policy):
    harness = two_nodes(policy, concurrency=2, functions=[function("f"), function("g")])
    harness.send(NodeSuspected("b"))
    harness.ready(harness.call("f"))
    harness.call("g")
    harness.send(NodeBack("b"))
    commands = harness.send(NodeLost("a", "silent for 10 s"))
    reason = "node a was lost while it ran: silent for 10 s; it runs again only if its action is annotated rerun"
    assert of_type(Fail, commands) == [Fail("0", reason)]
    assert dispatched(commands) == [("1", "b/gpu-1", "cold")]


def test_a_call_that_returns_is_served_before_later_ones_of_its_flow():
    harness = Harness("fcfs", devices=[gpu("a")], functions=[function("f")])
    harness.call("f")
    harness.call("f", "f")
    harness.send(NodeLost("a"))
    commands = harness.send(NodeJoined(NodeSpec("b"), (gpu("b"),)))
    assert dispatched(commands) == [("0", "b/gpu-1", "cold")]


def test_calls_that_fit_nowhere_wait_for_a_node():
    harness = two_nodes(functions=[function("f"), function("g", share=0)])
    harness.call("f", "f", "f")
    harness.send(NodeLost("a"), NodeLost("b"))
    assert harness.call("f", at=10) == []
    commands = harness.send(NodeJoined(NodeSpec("c"), (gpu("c", concurrency=2),)), at=20)
    assert dispatched(commands) == [("0", "c/gpu-1", "cold"), ("1", "c/gpu-1", "cold")]


def test_calls_do_not_wait_for_a_node_forever():
    harness = two_nodes()
    harness.call("f", "f", "f")
    harness.send(NodeLost("a"), NodeLost("b"), at=7)
    harness.call("f", at=100)
    commands = harness.send(Woke(), at=7 + NODE_WAIT_S)
    assert [fail.invocation for fail in of_type(Fail, commands)] == ["0", "1", "2", "3"]
    assert "no node came on which it fits: there are no devices" in of_type(Fail, commands)[0].reason
    assert of_type(Reject, harness.call("f"))


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_calls_that_wait_for_a_node_do_not_keep_others_waiting(policy):
    large = function("large", memory_bytes=12 * GIB)
    harness = Harness(policy, devices=[gpu("a"), gpu("b", memory_bytes=4 * GIB)], functions=[large, function("f")])
    harness.call("large")
    harness.send(NodeLost("a"))
    assert places(harness.call("f")) == ["b/gpu-1"]


def test_a_lost_device_still_fails_calls_that_fit_nowhere_at_once():
    harness = Harness("fcfs", devices=[gpu("a")], functions=[function("f")])
    harness.call("f", "f")
    assert len(of_type(Fail, harness.send(DeviceLost("a/gpu-1")))) == 2


def test_a_function_that_was_removed_in_the_meantime_fails_with_its_node():
    harness = Harness("fcfs", devices=[gpu("a")], functions=[function("f")])
    harness.call("f")
    harness.scheduler.step(0, [])
    harness.send(NodeLost("a"))
    harness.send(FunctionDeployed("default", replace(function("f"), share=0)))  # moves to the cpu
    assert not harness.scheduler.invocations


def test_events_about_unknown_nodes_are_refused():
    harness = two_nodes()
    for event in (NodeSuspected("x"), NodeBack("x"), NodeDraining("x"), NodeLost("x"), DatasetHeld("x", "d", 1)):
        with pytest.raises(EventError, match="there is no node 'x'"):
            harness.send(event)
    with pytest.raises(EventError, match="there is a node 'a' already"):
        harness.send(NodeJoined(NodeSpec("a"), ()))
    with pytest.raises(EventError, match="belongs to node 'c', not to 'd'"):
        harness.send(NodeJoined(NodeSpec("d"), (gpu("c"),)))
    with pytest.raises(EventError, match="there is a device a/gpu-1 already"):
        harness.send(NodeJoined(NodeSpec("d"), (replace(gpu("a"), node="d"),)))


# --- resources of one node --------------------------------------------------------------------------------


def test_host_memory_is_counted_by_node():
    hungry = replace(function("f"), host_bytes=GIB)
    harness = Harness("fcfs", devices=[])
    harness.send(NodeJoined(NodeSpec("a", GIB), (gpu("a", concurrency=4),)))
    harness.send(NodeJoined(NodeSpec("b", 2 * GIB), (gpu("b", concurrency=4),)))
    harness.send(FunctionDeployed("default", hungry))
    assert sorted(places(harness.call("f", "f", "f", "f"))) == ["a/gpu-1", "b/gpu-1", "b/gpu-1"]
    nodes = harness.scheduler.registry.nodes
    assert [nodes[name].host.claimed for name in "ab"] == [GIB, 2 * GIB]


def test_a_function_that_no_host_can_hold_is_refused_with_the_largest():
    harness = Harness("fcfs", devices=[gpu("a"), gpu("b")])
    harness.send(HostMemorySet(GIB, "a"), HostMemorySet(3 * GIB, "b"))
    harness.send(FunctionDeployed("default", replace(function("f"), host_bytes=4 * GIB)))
    (refused,) = of_type(Reject, harness.call("f"))
    assert f"{4 * GIB} bytes of host memory each, and there are {3 * GIB}" in refused.reason
    harness.send(NodeJoined(NodeSpec("c", 8 * GIB), (gpu("c"),)))
    assert places(harness.call("f")) == ["c/gpu-1"]


def test_sessions_keep_at_most_half_of_the_memory_of_each_node():
    harness = Harness("fcfs", devices=[])
    harness.send(NodeJoined(NodeSpec("a", 2 * GIB), (gpu("a", concurrency=4),)))
    harness.send(NodeJoined(NodeSpec("b", 2 * GIB), (gpu("b", concurrency=4),)))
    harness.send(FunctionDeployed("default", replace(function("f"), host_bytes=GIB)))
    harness.run_all(harness.call("f", "f", "f", "f", session="s"))
    nodes = harness.scheduler.registry.nodes
    assert [len(nodes[name].host.kept) for name in "ab"] == [1, 1]


def test_whole_devices_are_gathered_on_one_node():
    devices = [gpu("a"), gpu("b"), gpu("c"), gpu("c", 2)]
    harness = Harness("fcfs", devices=devices, functions=[function("two", share=2)])
    assert places(harness.call("two")) == ["c/gpu-1,c/gpu-2"]
    text = misfit(function("three", share=3), devices)
    assert "takes so many whole devices of one kind on one node; there are 2 of kind gpu" in text


def test_whole_devices_are_gathered_on_one_of_many_nodes():
    devices = [gpu(f"n{number}") for number in range(70)] + [gpu("last"), gpu("last", 2)]
    harness = Harness("fair_resident", devices=devices, functions=[function("two", share=2)])
    assert places(harness.call("two")) == ["last/gpu-1,last/gpu-2"]


def test_one_machine_is_one_node_without_a_name():
    harness = Harness("fcfs", devices=[device("gpu-1"), device("gpu-2")])
    assert list(harness.scheduler.registry.nodes) == [""]
    harness.send(DeviceAdded(gpu("other")))
    assert list(harness.scheduler.registry.nodes) == ["", "other"]


# --- data -------------------------------------------------------------------------------------------------


def nodes_with_data(policy, **held):
    harness = Harness(policy, devices=[])
    for name, size in held.items():
        harness.send(NodeJoined(NodeSpec(name, bandwidth_bytes_s=10 * MIB), (gpu(name, concurrency=2),)))
        harness.send(DatasetHeld(name, "d", size))
    harness.send(FunctionDeployed("default", function("f", datasets=("d",))))
    return harness


@pytest.mark.parametrize("policy", ["batch", "eedf", "fair_resident", "fcfs", "mqfq_sticky", "sjf"])
def test_a_call_goes_where_its_data_are(policy):
    harness = nodes_with_data(policy, a=0, b=100 * MIB, c=10 * MIB)
    assert places(harness.call("f")) == ["b/gpu-1"]


def test_data_are_a_cost_and_not_a_rule():
    harness = nodes_with_data("fair_resident", a=99 * MIB, b=100 * MIB)
    harness.send(NodeSuspected("b"))
    harness.run_all(harness.call("f"))
    harness.send(NodeBack("b"))
    assert dispatched(harness.call("f")) == [("1", "a/gpu-1", "warm")]  # 0.1 s for data, but no cold start


def test_a_dataset_that_was_removed_has_no_place():
    harness = nodes_with_data("fair_resident", a=0, b=100 * MIB)
    harness.send(DatasetRemoved("d"))
    assert places(harness.call("f")) == ["a/gpu-1"]


def test_among_many_devices_those_with_the_data_are_looked_at():
    harness = Harness("fair_resident", devices=[gpu(f"n{number}") for number in range(100)])
    harness.send(NodeJoined(NodeSpec("z", bandwidth_bytes_s=MIB), (gpu("z"),)), DatasetHeld("z", "d", 50 * MIB))
    for number in range(100):
        harness.scheduler.registry.nodes[f"n{number}"].spec = NodeSpec(f"n{number}", bandwidth_bytes_s=MIB)
    harness.send(FunctionDeployed("default", function("f", datasets=("d",))))
    assert places(harness.call("f")) == ["z/gpu-1"]


def test_files_are_predicted_and_fetched_on_the_node_where_the_next_call_will_run():
    harness = nodes_with_data("fair_resident", a=0, b=100 * MIB)
    commands = harness.call("f", session="s")
    assert [command.node for command in of_type(Predict, commands)] == ["b"]
    files = (LikelyFile("d", "x", MIB, 0.9),)
    (fetch,) = of_type(Fetch, harness.send(FilesPredicted("default", "s", "model", files)))
    assert fetch.node == "b"
    harness.run_all(commands)
    harness.send(NodeSuspected("b"))
    moved = harness.call("f", session="s")
    assert places(moved) == ["a/gpu-1"]
    assert "a" in [command.node for command in of_type(Predict, moved)]
    assert harness.send(FetchEnded(fetch.fetch, 1)) == []


def test_fetches_of_a_lost_node_are_forgotten():
    harness = nodes_with_data("fair_resident", a=0, b=100 * MIB)
    harness.call("f", session="s")
    files = (LikelyFile("d", "x", MIB, 0.9),)
    (fetch,) = of_type(Fetch, harness.send(FilesPredicted("default", "s", "model", files)))
    harness.send(NodeLost("b"))
    harness.send(FetchEnded(fetch.fetch, 1))  # late, but not wrong
    with pytest.raises(EventError, match="has ended already"):
        harness.send(FetchEnded(fetch.fetch, 1))


# --- adoption ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_an_idle_sandbox_is_adopted_warm(policy):
    harness = two_nodes(policy)
    harness.send(SandboxAdopted(1_000_007, "default", "f", ("b/gpu-1",)))
    harness.send(NodeSuspected("a"))
    assert of_type(Run, harness.call("f")) == [Run("0", 1_000_007)]
    harness.finish("0")
    harness.send(NodeBack("a"), NodeSuspected("b"))
    assert [start.sandbox for start in of_type(StartSandbox, harness.call("f"))] == [1_000_008]


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_running_call_is_adopted_with_its_sandbox(policy):
    harness = two_nodes(policy)
    harness.send(SandboxAdopted(9, "default", "f", ("a/gpu-1",), "old", "s"))
    assert harness.flow("f").in_flight == 1
    assert Complete("old") in harness.send(RunFinished("old", 9, 2))
    assert list(harness.scheduler.registry.nodes["a"].host.kept) == [9]  # for its session


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_calls_of_two_lost_nodes_are_served_in_order_of_arrival(policy):
    harness = two_nodes(policy)
    harness.call("f", "f", "f")
    harness.send(NodeLost("a"), NodeLost("b"))
    commands = harness.send(NodeJoined(NodeSpec("c"), (gpu("c", concurrency=4),)))
    assert [invocation for invocation, _, _ in dispatched(commands)] == ["0", "1", "2"]


def test_a_sandbox_that_does_not_fit_is_not_adopted():
    harness = two_nodes(functions=[function("f", memory_bytes=10 * GIB), function("two", share=2)])
    harness.send(SandboxAdopted(5, "default", "f", ("a/gpu-1",), "x"))
    with pytest.raises(EventError, match="a/gpu-1 has no room"):
        harness.send(SandboxAdopted(6, "default", "f", ("a/gpu-1",)))
    with pytest.raises(EventError, match="cannot be adopted as number 5"):
        harness.send(SandboxAdopted(5, "default", "f", ("b/gpu-1",)))
    with pytest.raises(EventError, match="cannot be on b/gpu-1"):
        harness.send(SandboxAdopted(7, "default", "two", ("b/gpu-1",)))
    with pytest.raises(EventError, match="it is here already"):
        harness.send(SandboxAdopted(8, "default", "f", ("b/gpu-1",), "x"))


def test_a_dispatch_says_why_and_for_whom_room_was_made():
    harness = Harness("fcfs", devices=[device(memory_bytes=GIB)], functions=[function("f"), function("g")])
    harness.run_all(harness.call("f"))
    unload, start, *_, dispatch = harness.call("g")
    assert (unload.reason, unload.room_for) == ("its memory is needed", "1")
    assert (start.purpose, start.reason) == ("call", "oldest")
    assert isinstance(dispatch, Dispatch)


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_call_on_a_suspected_node_is_adopted(policy):
    harness = two_nodes(policy)
    harness.send(NodeSuspected("a"), NodeSuspected("b"))
    harness.send(SandboxAdopted(9, "default", "f", ("a/gpu-1",), "old"))
    assert Complete("old") in harness.send(RunFinished("old", 9, 2))
