"""The admission policy of Clockwork's paper: calls wait, and run in time or are refused."""

from aliquot.core.admission.records import RefusalCause
from aliquot.core.commands import Dispatch, Promise, Reject, StartSandbox, WakeAt
from aliquot.core.events import FunctionRemoved, InvocationArrived, Woke
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type


def make():
    return Harness(
        "balance",
        devices=[device("gpu-1", concurrency=1, memory_bytes=None)],
        functions=[function("f", run_s=1, cold_s=0, load_s=0, memory_bytes=0)],
        admission="clockwork",
        params={"clockwork": {"margin_s": "0"}},
    )


def ask(harness, name, deadline_s, at=None):
    return harness.send(InvocationArrived(name, "default", "f", deadline_s), at=at)


def dispatched(commands):
    return [command.invocation for command in of_type(Dispatch, commands)]


def test_an_idle_lane_takes_the_call_that_must_begin_first_and_nothing_is_promised():
    harness = make()
    commands = ask(harness, "first", 9)
    assert not of_type(Promise, commands)
    assert of_type(StartSandbox, commands)
    assert dispatched(harness.ready(commands)) == ["first"]
    ask(harness, "loose", 9)
    ask(harness, "tight", 5)
    harness.call("f")
    assert dispatched(harness.finish("first", at=1)) == ["tight"]
    assert dispatched(harness.finish("tight", at=2)) == ["loose"]
    assert dispatched(harness.finish("loose", at=3)) == ["0"]  # a plain call does not starve


def test_a_call_that_can_no_longer_end_in_time_is_refused_when_that_is_so():
    harness = make()
    harness.ready(ask(harness, "long", 50))
    (wake,) = of_type(WakeAt, ask(harness, "late", 3))
    assert 2 < wake.at < 2.01
    (reject,) = of_type(Reject, harness.send(Woke(), at=wake.at))
    assert (reject.invocation, reject.refusal.why) == ("late", RefusalCause.DEADLINE)


def test_a_run_is_expected_to_take_as_long_as_the_longest_of_the_last_ones():
    harness = make()
    harness.ready(ask(harness, "slow", 50))
    harness.finish("slow", run_s=4, at=4)
    (reject,) = of_type(Reject, ask(harness, "short", 3, at=4))
    assert reject.invocation == "short"
    harness.send(FunctionRemoved("default", "f"))
    assert not harness.scheduler.admitter.policy._flows
