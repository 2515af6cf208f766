"""Short calls are handed to a busy sandbox of their flow, and return to their queue if it does not run them."""

from random import Random

import pytest
from msgspec.structs import replace

from aliquot.core.ahead import MAX_AHEAD, MIN_PAUSE_RUNS
from aliquot.core.commands import Complete, Dispatch, Fail, Run, RunNext, StartSandbox, StopSandbox, TakeBack
from aliquot.core.errors import EventError
from aliquot.core.events import (
    FunctionDeployed,
    InvocationArrived,
    InvocationCancelled,
    RunFinished,
    RunsTakenBack,
    SandboxLost,
)
from aliquot.core.interfaces import Queueing
from aliquot.core.model import CPU
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type

SHORT_S = 0.00002
SHORT = replace(function("short", share=0, run_s=None, cold_s=0, load_s=0), runs_ahead=True)
OTHER = replace(SHORT, name="other")


def harness(*functions, policy="fcfs", slots=32, inside_s=SHORT_S, queueing=QUEUEING):
    """Return a harness whose functions have a warm sandbox each, and have run once for `inside_s`."""
    devices = [device("cpu", kind=CPU, memory_bytes=None, concurrency=slots)]
    made = Harness(policy, devices=devices, functions=functions or [SHORT], queueing=queueing)
    for one in functions or [SHORT]:
        first = made.call(one.name)
        made.ready(first)
        finish(made, of_type(Dispatch, first)[0], inside_s=inside_s)
    return made


def finish(made, command, *, inside_s=SHORT_S):
    return made.send(RunFinished(command.invocation, command.sandbox, 0.0001, inside_s))


def test_short_calls_are_handed_to_the_busy_sandbox_and_run_in_order():
    made = harness()
    commands = made.call("short", "short", "short")
    (run,) = of_type(Run, commands)
    following = of_type(RunNext, commands)
    assert [command.sandbox for command in following] == [run.sandbox] * 2
    assert not of_type(StartSandbox, commands)
    for command in (run, *following):
        assert finish(made, command)[0] == Complete(command.invocation)
    assert not made.scheduler.invocations


@pytest.mark.parametrize("policy", ["fair_resident", "fcfs"])
def test_a_call_that_arrives_alone_goes_to_the_busy_sandbox_rather_than_to_an_idle_one(policy):
    made = harness(policy=policy, inside_s=0)
    both = made.call("short", "short")
    made.ready(both)
    for command in of_type(Dispatch, both):
        finish(made, command)
    (run,) = of_type(Run, made.call("short"))
    (following,) = of_type(RunNext, made.call("short"))
    assert following.sandbox == run.sandbox


@pytest.mark.parametrize("policy", ["fair_resident", "fcfs", "mqfq_sticky"])
def test_calls_of_a_sandbox_with_a_slice_use_its_compute_one_after_another(policy):
    shared = replace(SHORT, share=0.5, memory_bytes=0)
    made = Harness(policy, devices=[device("gpu", concurrency=32)], functions=[shared])
    first = made.call("short")
    made.ready(first)
    finish(made, of_type(Dispatch, first)[0])
    commands = made.call("short", "short", "short")
    run, *following = of_type(Run | RunNext, commands)
    assert [type(command) for command in following] == [RunNext, RunNext]
    gpu = made.scheduler.registry.devices["gpu"]
    assert (gpu.running, gpu.shares_used) == (3, 0.5)
    left = 2
    for command in (run, *following):
        assert finish(made, command)[0] == Complete(command.invocation)
        assert (gpu.running, gpu.shares_used) == (left, 0.5 if left else 0)
        left -= 1


def test_calls_of_a_sandbox_with_a_slice_leave_room_for_a_neighbour():
    shared, neighbour = replace(SHORT, share=0.5, memory_bytes=0), replace(OTHER, share=0.5, memory_bytes=0)
    made = Harness("fcfs", devices=[device("gpu", concurrency=32)], functions=[shared, neighbour])
    for name in ("short", "other"):
        first = made.call(name)
        made.ready(first)
        finish(made, of_type(Dispatch, first)[0])
    made.call(*["short"] * 4)
    assert len(of_type(Run, made.call("other"))) == 1


def test_a_call_handed_ahead_is_run_by_no_other_command():
    made = harness()
    run, following = of_type(Run | RunNext, made.call("short", "short"))
    assert not of_type(Run, finish(made, run))
    with pytest.raises(EventError, match="cannot have finished"):
        finish(made, run)
    assert finish(made, following)[0] == Complete(following.invocation)


@pytest.mark.parametrize("inside_s", [0, 0.001], ids=["unknown", "long"])
def test_calls_that_are_not_known_to_be_short_get_sandboxes_of_their_own(inside_s):
    made = harness(inside_s=inside_s)
    assert len(of_type(Dispatch, made.call("short", "short"))) == 2
    assert not of_type(RunNext, made.log)


def test_calls_of_other_functions_and_of_sessions_get_sandboxes_of_their_own():
    made = harness(SHORT, replace(OTHER, runs_ahead=False))
    made.call("other", "other")
    made.call("short")
    made.call("short", session="s")
    assert not of_type(RunNext, made.log)


@pytest.mark.parametrize("policy", ["fair_resident", "fcfs"])
def test_a_call_that_needs_a_sandbox_of_its_own_is_not_handed_ahead_and_does_not_keep_others_from_it(policy):
    made = harness(policy=policy)
    run, following = of_type(Run | RunNext, made.call("short", "short"))
    (own,) = of_type(StartSandbox, made.send(InvocationArrived("own", "default", "short", own_sandbox=True)))
    assert own.sandbox != run.sandbox
    (third,) = of_type(RunNext, made.call("short"))
    assert third.sandbox == run.sandbox
    for command in (run, following, third):
        finish(made, command)
    (alone,) = of_type(Run, made.send(InvocationArrived("again", "default", "short", own_sandbox=True)))
    (behind,) = of_type(Dispatch, made.call("short"))
    assert behind.sandbox != alone.sandbox


def test_a_sandbox_takes_a_limited_number_of_calls_ahead():
    made = harness()
    commands = made.call(*["short"] * (MAX_AHEAD + 2))
    ahead = of_type(RunNext, commands)
    assert len(ahead) == MAX_AHEAD
    assert len({command.sandbox for command in of_type(Dispatch, commands)}) == 2


def test_calls_that_are_taken_back_run_elsewhere_first_of_all_and_others_are_not_handed_ahead_for_a_while():
    made = harness()
    run, *ahead = of_type(Run | RunNext, made.call("short", "short", "short"))
    taken = tuple(command.invocation for command in ahead)
    commands = made.send(RunsTakenBack(run.sandbox, taken))
    dispatches = of_type(Dispatch, commands)
    assert tuple(command.invocation for command in dispatches) == taken
    assert run.sandbox not in {command.sandbox for command in dispatches}
    assert not of_type(RunNext, made.call("short"))
    assert not of_type(Fail, made.log)


def test_calls_are_handed_ahead_again_after_enough_runs():
    made = harness()
    run, ahead = of_type(Run | RunNext, made.call("short", "short"))
    made.ready(made.send(RunsTakenBack(run.sandbox, (ahead.invocation,))))
    finish(made, run)
    made.finish(ahead.invocation)
    for _ in range(MIN_PAUSE_RUNS):
        assert not of_type(RunNext, made.log[-3:])
        (run,) = of_type(Run, made.call("short"))
        finish(made, run)
    assert of_type(RunNext, made.call("short", "short"))


def test_calls_behind_one_whose_sandbox_is_lost_run_elsewhere():
    made = harness()
    run, ahead = of_type(Run | RunNext, made.call("short", "short"))
    commands = made.send(SandboxLost(run.sandbox, "it died"))
    assert of_type(Fail, commands) == [Fail(run.invocation, "it died")]
    assert [command.invocation for command in of_type(Dispatch, commands)] == [ahead.invocation]


def test_a_call_is_cancelled_without_those_behind_it():
    """Only the shell can find out which calls have begun, so the sandbox is stopped after it has answered."""
    made = harness()
    run, ahead = of_type(Run | RunNext, made.call("short", "short"))
    assert made.send(InvocationCancelled(run.invocation, "enough")) == [TakeBack(run.sandbox)]
    commands = made.send(RunsTakenBack(run.sandbox, (ahead.invocation,)))
    assert of_type(Fail, commands) == [Fail(run.invocation, "enough")]
    assert [command.sandbox for command in of_type(StopSandbox, commands)] == [run.sandbox]
    assert [command.invocation for command in of_type(Dispatch, commands)] == [ahead.invocation]


def test_a_call_handed_ahead_is_cancelled_without_the_one_that_runs():
    made = harness()
    run, ahead = of_type(Run | RunNext, made.call("short", "short"))
    assert made.send(InvocationCancelled(ahead.invocation, "enough")) == [TakeBack(run.sandbox)]
    commands = made.send(RunsTakenBack(run.sandbox, (ahead.invocation,)))
    assert (of_type(Fail, commands), of_type(StopSandbox, commands)) == ([Fail(ahead.invocation, "enough")], [])
    assert finish(made, run)[0] == Complete(run.invocation)


def test_a_cancelled_call_that_had_begun_ends_with_its_sandbox():
    made = harness()
    run, ahead = of_type(Run | RunNext, made.call("short", "short"))
    made.send(InvocationCancelled(ahead.invocation, "enough"))
    assert made.send(RunsTakenBack(run.sandbox, ())) == []
    commands = finish(made, run)
    assert of_type(Complete, commands) == [Complete(run.invocation)]
    assert of_type(Fail, commands) == [Fail(ahead.invocation, "enough")]
    assert [command.sandbox for command in of_type(StopSandbox, commands)] == [run.sandbox]


def test_a_new_version_gets_no_calls_in_sandboxes_of_the_old_one():
    made = harness()
    run, ahead = of_type(Run | RunNext, made.call("short", "short"))
    made.send(FunctionDeployed("default", SHORT))
    (started,) = of_type(StartSandbox, made.call("short"))
    assert started.sandbox != run.sandbox
    finish(made, run)
    assert [command.sandbox for command in of_type(StopSandbox, finish(made, ahead))] == [run.sandbox]


def test_only_calls_that_were_handed_ahead_can_be_taken_back():
    made = harness()
    (run,) = of_type(Run, made.call("short"))
    with pytest.raises(EventError, match="cannot be taken back"):
        made.send(RunsTakenBack(run.sandbox, (run.invocation,)))


@pytest.mark.parametrize("policy", ["fair_resident", "mqfq_sticky"])
def test_a_flood_of_short_calls_does_not_delay_a_neighbour_more_than_in_sandboxes_of_their_own(policy):
    """Calls handed ahead hold slots like any other, so the neighbour's turn comes as early."""

    def calls_before_the_neighbour(flooding):
        made = harness(flooding, OTHER, policy=policy, slots=4)
        made.call(*[flooding.name] * 40)
        started = made.call("other")
        ended = 0
        while not any(
            command.sandbox for command in started if isinstance(command, Dispatch) and _is_other(made, command)
        ):
            made.ready(started)
            running = [s.invocation for s in made.scheduler.pool.sandboxes.values() if s.state == "busy"]
            started = made.finish(running[0].id, run_s=0.0001)
            ended += 1
        return ended

    assert calls_before_the_neighbour(SHORT) <= calls_before_the_neighbour(replace(SHORT, runs_ahead=False))


def _is_other(made, command):
    return made.scheduler.invocations[command.invocation].flow.spec.name == "other"


class EachByItself(QUEUEING["fair_resident"]):
    """The policy without its short way for further calls of a flow."""

    repeats = Queueing.repeats


class Counting(QUEUEING["fair_resident"]):
    """The policy as it is. It counts the choices."""

    choices = 0

    def choose(self, view):
        Counting.choices += 1
        return super().choose(view)


def play_short_calls(policy, seed):
    """Play random arrivals, ends and runs taken back, and return the commands."""
    random = Random(seed)
    functions = random.choice([[SHORT], [SHORT, OTHER]])
    slots = random.choice([4, 32])
    made = harness(*functions, policy="fair_resident", slots=slots, queueing={**QUEUEING, "fair_resident": policy})
    for _ in range(60):
        made.now += random.choice([0, 0.0001, 0.01])
        act = random.random()
        busy = [each for each in made.scheduler.pool.sandboxes.values() if each.state == "busy"]
        if act < 0.5 or not busy:
            made.ready(made.call(*random.choices([one.name for one in functions], k=random.randrange(1, 8))))
            continue
        sandbox = random.choice(busy)
        if act < 0.53 and sandbox.ahead:
            taken = tuple(each.id for each in sandbox.ahead[-random.randrange(1, 3) :])
            made.ready(made.send(RunsTakenBack(sandbox.id, taken)))
        else:
            made.ready(made.send(RunFinished(sandbox.invocation.id, sandbox.id, 0.0001, SHORT_S)))
    return made.log


def test_calls_handed_ahead_without_a_contest_get_the_commands_that_a_choice_for_each_would_give():
    Counting.choices = 0
    for seed in range(40):
        assert play_short_calls(Counting, seed) == play_short_calls(EachByItself, seed)
    assert of_type(RunNext, play_short_calls(Counting, 0))


def test_the_policy_is_asked_once_for_several_calls_that_are_handed_ahead_without_a_contest():
    made = harness(policy="fair_resident", queueing={**QUEUEING, "fair_resident": Counting})
    made.call("short")
    Counting.choices = 0
    assert len(of_type(RunNext, made.call(*["short"] * 8))) == 8
    assert Counting.choices <= 2  # the last one finds nothing left
