"""Calls of a function with `batch` run together in one sandbox, and end one by one."""

import pytest
from msgspec.structs import replace

from aliquot.core.batch_times import expected_time
from aliquot.core.commands import Complete, Dispatch, Fail, Run, StartSandbox, StopSandbox
from aliquot.core.errors import EventError
from aliquot.core.events import (
    FunctionDeployed,
    FunctionRemoved,
    InvocationArrived,
    InvocationCancelled,
    RunFinished,
    SandboxLost,
    SandboxStarted,
)
from aliquot.core.model import MAX_BATCH
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, dispatched, of_type

NET = replace(function("net"), batch=4)


def harness(*functions, policy="fcfs", batching="greedy", concurrency=1):
    return Harness(
        policy, devices=[device(concurrency=concurrency)], functions=functions or [NET], batching=batching, seed=1
    )


def running_batch(made, count=3):
    """Let calls wait behind a first one, which takes the names from 0 on, and return the `Run` of those that waited."""
    made.ready(made.call("net"))
    made.call(*["net"] * count)
    (run,) = of_type(Run, made.finish("0"))
    return run


def test_calls_that_wait_run_together_with_one_dispatch_each():
    made = harness()
    run = running_batch(made)
    assert run == Run("1", run.sandbox, ("2", "3"))
    assert dispatched(made.log)[-3:] == [(name, "gpu-1", "warm") for name in ("1", "2", "3")]
    assert made.scheduler.registry.devices["gpu-1"].running == 1
    ends = made.finish("1")
    assert of_type(Complete, ends) == [Complete(name) for name in ("1", "2", "3")]
    assert not made.scheduler.invocations


def test_a_batch_has_no_more_calls_than_its_function_takes():
    made = harness()
    assert len(running_batch(made, 6).riders) == 3
    (second,) = of_type(Run, made.finish("1"))
    assert second.riders == ("6",)


def test_calls_of_two_tenants_never_run_together():
    made = harness()
    made.send(FunctionDeployed("ann", NET))
    made.ready(made.call("net"))
    made.call("net", "net")
    made.call("net", "net", tenant="ann")
    commands = made.finish("0")
    commands += made.finish("1")
    made.ready(commands)
    assert [run.riders for run in of_type(Run, made.log)] == [(), ("2",), ("4",)]


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_calls_wait_for_a_cold_start_together_under_every_policy(policy):
    made = harness(policy=policy)
    commands = made.call("net", "net")
    (start,) = of_type(StartSandbox, commands)
    assert len(of_type(Dispatch, commands)) == 2
    (run,) = of_type(Run, made.send(SandboxStarted(start.sandbox)))
    assert run == Run("0", start.sandbox, ("1",))
    assert len(of_type(Complete, made.finish("0"))) == 2


def test_members_share_the_charge_of_their_run():
    """A tenant that runs 4 calls together pays as much as one that runs a single call of the same length."""
    for policy in ("fair_resident", "mqfq_sticky", "affinity"):
        made = harness(NET, replace(function("alone"), batch=1), policy=policy, concurrency=2)
        both = made.call(*["net"] * 4, "alone")
        made.ready(both)
        times = {name: made.policy().virtual_time(made.flow(name)) for name in ("net", "alone")}
        if policy == "affinity":
            vtimes = made.policy()._vtime
            times = {name: vtimes[made.flow(name).index] for name in ("net", "alone")}
        assert times["net"] == pytest.approx(times["alone"]), policy


def test_a_cancelled_member_leaves_and_the_others_go_on():
    made = harness()
    run = running_batch(made)
    for name in ("1", "3"):  # the leader is one of them
        assert of_type(Fail, made.send(InvocationCancelled(name))) == [Fail(name, "cancelled")]
    assert not of_type(StopSandbox, made.log)
    assert of_type(Complete, made.send(RunFinished("1", run.sandbox, 1))) == [Complete("2")]


def test_a_batch_that_all_members_have_left_is_stopped():
    made = harness()
    run = running_batch(made, 2)
    made.send(InvocationCancelled("1"))
    commands = made.send(InvocationCancelled("2"))
    assert [stop.sandbox for stop in of_type(StopSandbox, commands)] == [run.sandbox]
    assert made.scheduler.registry.devices["gpu-1"].running == 0


def test_members_that_leave_before_the_start_do_not_run():
    made = harness()
    (start,) = of_type(StartSandbox, made.call("net", "net", "net"))
    made.send(InvocationCancelled("0"))
    (run,) = of_type(Run, made.send(SandboxStarted(start.sandbox)))
    assert run == Run("1", start.sandbox, ("2",))


def test_members_of_a_failed_batch_run_again_alone():
    made = harness()
    run = running_batch(made)
    commands = made.send(RunFinished("1", run.sandbox, 1, again=("1", "3")))
    assert of_type(Complete, commands) == [Complete("2")]
    made.call("net")
    assert of_type(Run, commands) == [Run("1", run.sandbox)]
    assert of_type(Run, made.finish("1")) == [Run("3", run.sandbox)]
    assert of_type(Run, made.finish("3")) == [Run("4", run.sandbox)]


def test_members_of_a_lost_sandbox_run_again_alone_or_fail():
    made = harness()
    run = running_batch(made)
    commands = made.send(SandboxLost(run.sandbox, "killed", ("1",)))
    assert {fail.invocation for fail in of_type(Fail, commands)} == {"2", "3"}
    (run_again,) = of_type(Run, made.ready(commands))
    assert run_again.invocation == "1"
    assert not run_again.riders


def test_members_that_would_run_again_fail_with_their_removed_function():
    made = harness()
    run = running_batch(made)
    made.send(FunctionRemoved("default", "net"))
    commands = made.send(RunFinished("1", run.sandbox, 1, again=("2",)))
    assert [fail.invocation for fail in of_type(Fail, commands)] == ["2"]
    assert not made.scheduler.invocations


@pytest.mark.parametrize("lost", [True, False])
def test_a_batch_that_runs_out_of_memory_lowers_the_limit_until_the_next_version(lost):
    made = harness()
    run = running_batch(made, 4)
    everyone = ("1", "2", "3", "4")
    if lost:
        commands = made.send(SandboxLost(run.sandbox, "killed", everyone, out_of_memory=True))
    else:
        commands = made.send(RunFinished("1", run.sandbox, 1, again=everyone, out_of_memory=True))
    for _ in everyone:
        (single,) = of_type(Run, [*commands, *made.ready(commands)])
        commands = made.finish(single.invocation)
    assert made.flow("net").batches.limit == 3
    made.send(FunctionDeployed("default", NET))
    assert made.flow("net").batches.limit == 4


def test_a_run_is_known_by_the_name_that_it_was_given():
    made = harness()
    run = running_batch(made)
    made.send(InvocationCancelled("1"))
    with pytest.raises(EventError, match="2 cannot have finished"):
        made.send(RunFinished("2", run.sandbox, 1))


def test_a_function_with_few_instances_still_has_batches():
    made = harness(replace(NET, instances=1), policy="fair_resident")
    assert len(running_batch(made, 6).riders) == 3
    assert made.flow("net").queued == 0  # the other two wait for their own function alone
    assert len(made.flow("net").held_back) == 2
    (second,) = of_type(Run, made.finish("1"))
    assert len(second.riders) == 1


@pytest.mark.parametrize("batch", [0, MAX_BATCH + 1])
def test_an_impossible_batch_is_refused(batch):
    with pytest.raises(EventError, match=f"batch {batch} is not from 1 to {MAX_BATCH}"):
        harness(replace(NET, batch=batch))


# --- policies of batching ---------------------------------------------------------------------------------


def sizes_under(batching, seconds, count=12):
    """Return the sizes of so many batches, one after another, of which one with k calls takes `seconds(k)`."""
    made = harness(replace(NET, batch=8), batching=batching)
    made.ready(made.call("net"))
    name, sizes, size = "0", [], 1
    for _ in range(count):
        made.call(*["net"] * 9)
        (run,) = of_type(Run, made.finish(name, run_s=seconds(size), at=made.now + seconds(size)))
        name, size = run.invocation, 1 + len(run.riders)
        sizes.append(size)
    return sizes


def test_none_runs_every_call_alone():
    assert set(sizes_under("none", float)) == {1}


def test_greedy_runs_all_that_wait():
    assert set(sizes_under("greedy", float)) == {8}


def test_aimd_grows_by_one_while_larger_batches_are_worthwhile():
    """The first run of a size in a sandbox does not count, so every size comes twice."""
    assert sizes_under("aimd", lambda size: 1 + size / 10) == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7]


def test_aimd_returns_to_single_calls_where_batches_take_longer():
    sizes = sizes_under("aimd", lambda size: size**1.5)
    assert set(sizes) == {1, 2}
    assert sizes[3] == 1


def test_target_grows_to_three_sizes_and_then_takes_all():
    assert sizes_under("target", lambda size: 1 + size / 10, 8) == [1, 2, 2, 3, 3, 8, 8, 8]


def test_target_runs_as_many_as_the_first_deadline_allows():
    made = harness(replace(NET, batch=8), batching="target")
    made.ready(made.call("net"))
    name, size = "0", 1
    for _ in range(6):
        made.call(*["net"] * 3)
        (run,) = of_type(Run, made.finish(name, run_s=1 + size / 10, at=made.now + 1))
        name, size = run.invocation, 1 + len(run.riders)
    while made.flow("net").queued:
        (run,) = of_type(Run, made.finish(name, run_s=1.3))
        name = run.invocation
    made.send(*(InvocationArrived(f"late{number}", "default", "net", deadline_s=1.52) for number in range(8)))
    (run,) = of_type(Run, made.finish(name, run_s=1.3))
    assert len(run.riders) + 1 == 5  # 1.5 s, while six take 1.6


@pytest.mark.parametrize(
    ("known", "size", "expected"),
    [
        ({}, 3, None),
        ({2: 3.0}, 1, 3.0),
        ({2: 3.0}, 4, 6.0),
        ({1: 1.0, 4: 2.5}, 2, 1.5),
        ({1: 1.0, 4: 2.5}, 6, 3.5),
        ({1: 2.0, 2: 1.0, 4: 4.0}, 2, 2.0),  # a larger batch is never expected to take less
    ],
)
def test_the_time_of_an_unknown_size_follows_from_the_known_ones(known, size, expected):
    assert expected_time(known, size) == expected
