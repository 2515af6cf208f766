"""Promises in the scheduler: calls with a deadline or a cost limit are promised or refused at once."""

import pytest
from msgspec.structs import replace

from aliquot.config import PolicySettings
from aliquot.core.admission.estimates import MAX_TIMES, Outlook, TimeWindow
from aliquot.core.admission.records import Blame, Late, RefusalCause, SavedTimes
from aliquot.core.commands import BreakPromise, Complete, Dispatch, Fail, Promise, Reject, Run, StartSandbox, WakeAt
from aliquot.core.events import (
    DeviceLost,
    EstimatesRestored,
    FunctionDeployed,
    FunctionRemoved,
    InvocationArrived,
    InvocationCancelled,
    RunFinished,
    SandboxStarted,
    Woke,
)
from aliquot.core.model import FunctionSpec, Times
from aliquot.live.invocations.journal import snapshot
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type

EXACT = {"reservation": {"margin_s": "0"}}


def make(*, devices=None, functions=None, policy="fcfs"):
    """Make a scheduler with one device of two lanes and a function that runs for a second."""
    return Harness(
        policy,
        devices=devices or [device("gpu-1", concurrency=2, memory_bytes=None)],
        functions=functions or [function("f", run_s=1, cold_s=0)],
        admission="reservation",
        params=EXACT,
    )


def ask(harness, name, deadline_s=None, at=None, function_name="f", **limits):
    return harness.send(InvocationArrived(name, "default", function_name, deadline_s, **limits), at=at)


def warm(harness, count=2):
    """Start sandboxes for as many promised calls, and let the calls end."""
    for number in range(count):
        harness.ready(ask(harness, f"w{number}", 100))
    for number in range(count):
        harness.finish(f"w{number}", at=harness.now + 1)


def test_a_call_that_fits_is_promised_and_its_sandbox_starts_for_the_plan():
    harness = make()
    commands = ask(harness, "x", 2)
    (promise,) = of_type(Promise, commands)
    assert (promise.invocation, promise.due, promise.ends, promise.kinds) == ("x", 2, 1.5, ("gpu",))
    assert of_type(StartSandbox, commands)[0].purpose == "plan"
    assert not of_type(Dispatch, commands)
    assert [command.invocation for command in of_type(Dispatch, harness.ready(commands))] == ["x"]
    assert of_type(Complete, harness.finish("x", at=1.5))


def test_a_call_that_does_not_fit_is_refused_with_an_offer_that_is_taken():
    harness = make()
    warm(harness)
    start = harness.now
    for number in range(4):
        assert of_type(Promise, ask(harness, f"a{number}", 2.5))
    (reject,) = of_type(Reject, ask(harness, "late", 2.5))
    assert reject.refusal.why is RefusalCause.DEADLINE
    assert (reject.refusal.needs_s, reject.refusal.earliest_s) == (1, 3)
    assert reject.refusal.retry_s == 0.5
    (promise,) = of_type(Promise, ask(harness, "later", reject.refusal.offer.deadline_s))
    assert promise.ends == start + 3


def test_the_tightest_deadline_goes_first_and_pushes_others_as_far_as_they_allow():
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)])
    warm(harness, 1)
    ask(harness, "running", 50)
    ask(harness, "loose", 50)
    (promise,) = of_type(Promise, ask(harness, "tight", 2))
    assert promise.ends == harness.now + 2
    commands = harness.finish("running", at=harness.now + 1)
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["tight"]


def test_limits_that_no_device_can_meet_are_refused_for_ever():
    harness = make()
    warm(harness)
    for number in range(8):
        ask(harness, f"learn{number}", 100)
        harness.finish(f"learn{number}", at=harness.now + 1)
    (reject,) = of_type(Reject, ask(harness, "x", 0.5))
    assert reject.refusal.why is RefusalCause.NEVER
    (reject,) = of_type(Reject, ask(harness, "y", 100, cost_limit=1))
    assert (reject.refusal.why, reject.refusal.cost) == (RefusalCause.COST, 500)


def test_of_calls_of_which_nothing_is_known_one_runs_as_a_probe():
    harness = make(functions=[function("f", run_s=None, cold_s=0)])
    commands = ask(harness, "probe", 5)
    assert of_type(Dispatch, commands)
    assert not of_type(Promise, commands)
    (reject,) = of_type(Reject, ask(harness, "x", 5))
    assert reject.refusal.why is RefusalCause.UNKNOWN
    harness.ready(commands)
    harness.finish("probe", at=1)
    assert of_type(Promise, ask(harness, "y", 5))


def test_after_a_cancelled_probe_the_next_call_is_one():
    harness = make(functions=[function("f", run_s=None, cold_s=0)])
    ask(harness, "probe", 5)
    harness.send(InvocationCancelled("probe"))
    assert not of_type(Reject, ask(harness, "next", 5))


def test_a_kind_of_device_that_was_never_tried_gets_a_first_run_beside_the_known_one():
    harness = make(
        devices=[device("gpu-1", concurrency=100, memory_bytes=None), device("cpu", kind="cpu", memory_bytes=None)],
        functions=[function("f", run_s=1, cold_s=0, share=0.5, times_by_kind={"cpu": Times()})],
    )
    commands = ask(harness, "first", 50)
    assert [command.place for command in of_type(StartSandbox, commands)] == [("cpu",)]
    assert not of_type(Promise, commands)
    (promise,) = of_type(Promise, ask(harness, "x", 50))
    assert promise.kinds == ("gpu",)
    harness.ready(commands)
    harness.finish("first", at=3)
    (promise,) = of_type(Promise, ask(harness, "y", 50))
    assert promise.kinds == ("cpu",)


def test_a_share_of_a_gpu_is_a_slot_on_processors():
    harness = make(
        devices=[device("cpu", kind="cpu", concurrency=4, memory_bytes=None)],
        functions=[function("f", share=1, cold_s=0, times_by_kind={"cpu": Times(1)})],
    )
    for number in range(4):
        (promise,) = of_type(Promise, ask(harness, f"a{number}", 1.2))
        assert promise.kinds == ("cpu",)
    assert of_type(Reject, ask(harness, "late", 1.2))
    assert len(of_type(Dispatch, harness.call("f"))) == 0


def test_a_plain_call_takes_a_lane_only_if_it_ends_before_the_next_block_must_start():
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)])
    warm(harness, 1)
    ask(harness, "a", 1.5)
    ask(harness, "b", 2.5)
    harness.call("f")
    commands = harness.finish("a", at=harness.now + 1)
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["b"]
    commands = harness.finish("b", at=harness.now + 1)
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["0"]


def test_a_share_takes_its_part_of_the_lanes_of_a_device_with_many_slots():
    harness = make(
        devices=[device("gpu-1", concurrency=100, memory_bytes=None)],
        functions=[function("f", run_s=1, cold_s=0, share=0.5)],
    )
    warm(harness)
    for number in range(4):
        assert of_type(Promise, ask(harness, f"a{number}", 2.5))
    (reject,) = of_type(Reject, ask(harness, "late", 2.5))
    assert reject.refusal.why is RefusalCause.DEADLINE


def test_calls_that_take_several_lanes_join_a_block_that_grows():
    harness = make(
        devices=[device("gpu-1", concurrency=2, memory_bytes=None)],
        functions=[FunctionSpec("f", share=1, times=Times(1, batch_s={4: 1.5}), batch=4)],
    )
    warm(harness, 1)
    for number in range(4):
        assert of_type(Promise, ask(harness, f"a{number}", 4))
    commands = harness.finish("a0", at=harness.now + 1)
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["a1", "a2", "a3"]


def test_a_late_batch_loses_only_the_members_that_are_late():
    harness = make(
        devices=[device("gpu-1", concurrency=1, memory_bytes=None)],
        functions=[
            function("f", run_s=1, cold_s=0),
            FunctionSpec("b", share=1, times=Times(1, batch_s={4: 1}), batch=4),
        ],
    )
    harness.ready([*ask(harness, "w0", 100), *ask(harness, "w1", 100, function_name="b")])
    harness.finish("w0", at=harness.now + 1)
    harness.finish("w1", at=harness.now + 1)
    start = harness.now
    assert of_type(Promise, ask(harness, "slow", 10))
    for name, deadline_s in (("tight", 2.4), ("loose", 30), ("looser", 40)):
        assert of_type(Promise, ask(harness, name, deadline_s, function_name="b", late=Late.DROP))
    broken = of_type(BreakPromise, harness.send(Woke(), at=start + 1.5))
    assert [(command.invocation, command.blame) for command in broken] == [("tight", Blame.OTHER_RUN)]
    (run,) = of_type(Run, harness.finish("slow", at=start + 1.6))
    assert {run.invocation, *run.riders} == {"loose", "looser"}


def test_a_run_that_takes_longer_than_its_bound_breaks_only_promises_that_no_longer_fit():
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)])
    warm(harness, 1)
    start = harness.now
    ask(harness, "slow", 1)
    ask(harness, "tight", 2.2)
    ask(harness, "loose", 50)
    commands = harness.send(Woke(), at=start + 1.01)
    assert [(command.invocation, command.blame) for command in of_type(BreakPromise, commands)] == [
        ("slow", Blame.OWN_RUN)
    ]
    commands = harness.send(Woke(), at=start + 1.2)
    assert [(command.invocation, command.blame) for command in of_type(BreakPromise, commands)] == [
        ("tight", Blame.OTHER_RUN)
    ]
    commands = harness.finish("slow", at=start + 2)  # the broken one is a plain call, and there is time for it
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["tight"]


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_call_whose_promise_is_broken_goes_before_later_calls_and_all_run(policy):
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)], policy=policy)
    warm(harness, 1)
    start = harness.now
    ask(harness, "slow", 1)
    ask(harness, "broken", 2.2)
    harness.call("f")
    assert of_type(BreakPromise, harness.send(Woke(), at=start + 1.2))
    commands = harness.finish("slow", at=start + 2)
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["broken"]
    commands = harness.finish("broken", at=start + 3)
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["0"]


def test_the_shell_is_woken_when_a_promise_becomes_late():
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)])
    warm(harness, 1)
    due = harness.now + 5
    commands = ask(harness, "x", 5)
    while not of_type(BreakPromise, commands):
        commands = harness.send(Woke(), at=of_type(WakeAt, commands)[-1].at)
    assert harness.now == pytest.approx(due, abs=1e-5)


def test_a_call_with_late_drop_ends_when_its_promise_is_broken():
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)])
    warm(harness, 1)
    ask(harness, "x", 1, late=Late.DROP)
    commands = harness.send(Woke(), at=harness.now + 1.01)
    assert [type(command).__name__ for command in commands if getattr(command, "invocation", "") == "x"] == [
        BreakPromise.__name__,
        Fail.__name__,
    ]


def test_calls_on_a_lost_device_move_to_another_or_lose_their_promise():
    devices = [device(f"gpu-{number}", concurrency=1, memory_bytes=None) for number in (1, 2)]
    harness = make(devices=devices)
    harness.ready([*ask(harness, "a", 3), *ask(harness, "b", 3)])
    ask(harness, "c", 3)
    ask(harness, "d", 3)
    commands = harness.send(DeviceLost("gpu-1"), at=0.5)
    broken = {command.invocation: command.blame for command in of_type(BreakPromise, commands)}
    assert set(broken.values()) == {Blame.LOST}
    assert len(broken) == 1
    assert [command.invocation for command in of_type(Fail, commands)] == list(broken)
    commands = harness.finish("b" if "a" in broken else "a", at=1)
    assert len(of_type(Dispatch, commands)) == 1


def test_cancelled_and_removed_calls_leave_the_plan():
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)])
    warm(harness, 1)
    for name in ("a", "b", "c"):
        ask(harness, name, 10)
    harness.send(InvocationCancelled("b"))
    commands = harness.send(FunctionRemoved("default", "f"))
    assert [command.invocation for command in of_type(Fail, commands)] == ["c"]
    assert not harness.scheduler.admitter.plan.kinds["gpu"].blocks


def test_no_tenant_reserves_more_than_its_share_while_another_is_active():
    harness = make(policy="fair_resident")
    for tenant in ("ann", "bob"):
        harness.send(FunctionDeployed(tenant, function("f", run_s=1, cold_s=0)))
    harness.call("f", tenant="bob")
    answers = [harness.send(InvocationArrived(f"a{n}", "ann", "f", 10.0)) for n in range(20)]
    refused = [of_type(Reject, commands)[0].refusal for commands in answers if of_type(Reject, commands)]
    assert len(of_type(Promise, [command for commands in answers for command in commands])) in range(9, 13)
    assert {refusal.why for refusal in refused} == {RefusalCause.SHARE}
    assert all(refusal.offer is None and refusal.retry_s > 0 for refusal in refused)  # no deadline would do now


def test_a_promised_call_belongs_to_its_session():
    harness = make()
    harness.ready(ask(harness, "x", 5, session="s"))
    harness.finish("x", at=1.5)
    (sandbox,) = harness.flow("f").sandboxes.values()
    assert sandbox.session is not None


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_snapshot_includes_the_plan_and_what_was_learned(policy):
    harness = make(policy=policy)
    warm(harness)
    for number in range(5):
        ask(harness, f"a{number}", 4)
    body = snapshot.take(harness.scheduler, PolicySettings(policy), now_ms=0)
    again = snapshot.restore(snapshot.read(body))
    sandbox = harness.scheduler.invocations["a0"].sandbox.id
    now = harness.now + 1.5
    events = [RunFinished("a0", sandbox, 1.5), InvocationArrived("b", "default", "f", 3), Woke()]
    assert again.step(now, events) == harness.send(*events, at=now)
    events = [InvocationArrived("c", "default", "f", 2), InvocationArrived("d", "default", "f"), DeviceLost("gpu-1")]
    assert again.step(now + 1, events) == harness.send(*events, at=now + 1)


def test_after_three_refusals_for_want_of_a_warm_sandbox_one_is_started():
    harness = make(functions=[function("f", run_s=0.01, cold_s=1)])
    assert not of_type(StartSandbox, [*ask(harness, "a", 0.1), *ask(harness, "b", 0.1)])
    (start,) = of_type(StartSandbox, ask(harness, "c", 0.1))
    harness.send(SandboxStarted(start.sandbox), at=1)
    assert of_type(Promise, ask(harness, "d", 0.1))


def test_estimates_are_restored_after_a_restart():
    harness = make(functions=[function("f", run_s=None, cold_s=0)])
    saved = Outlook()
    saved.record_run("gpu", 1, 0.5, first=False, now=0)
    harness.send(EstimatesRestored("default", "f", saved.saved()))
    (promise,) = of_type(Promise, ask(harness, "x", 5))
    assert promise.ends == 1.5  # a load of half a second, and twice the only run
    assert saved.saved() == (SavedTimes("gpu", 1, (0.5,)),)


def test_a_bound_is_a_quantile_of_the_last_times():
    window = TimeWindow()
    assert window.bound(3.0, 0) == 3
    window.record(2, 0)
    assert [window.bound(None, 0), window.bound(3.0, 0), window.bound(1.0, 0)] == [4, 3, 4]
    for number in range(MAX_TIMES):
        window.record(1 + number / 100, 0)
    assert len(window) == MAX_TIMES
    assert window.bound(None, 0) == pytest.approx(1.62 + 0.21)  # and the 0.84 quantile less the median


def test_runs_of_all_sizes_tell_how_much_longer_than_declared_a_batch_may_take():
    outlook, spec = Outlook(), FunctionSpec("f", times=Times(1, batch_s={2: 1.5, 8: 4}), batch=8)
    on = device("gpu-1")
    assert outlook.run_s(spec, on, 1, 0) == 1
    for size, seconds in [(1, 1.5), (2, 2.25)] * 4:
        outlook.record_run("gpu", size, seconds, first=False, now=0)
        outlook.record_ratio("gpu", 1.5, 0)
    assert outlook.run_s(spec, on, 8, 0) == pytest.approx(6)


def test_a_bound_falls_while_nothing_runs_so_that_one_outlier_refuses_nothing_for_ever():
    window = TimeWindow()
    for seconds in (1, 1, 1, 1, 1, 1, 1, 100):
        window.record(seconds, 0)
    assert window.bound(None, 9) == 100
    assert window.bound(None, 11) == pytest.approx(50.5)
    assert window.bound(None, 5000) < 1.5


def test_a_declared_time_that_no_run_has_exceeded_stays_the_bound():
    window = TimeWindow()
    window.record(0.02, 0)
    assert window.bound(0.1, 1000) == 0.1


def test_a_block_starts_when_its_sandbox_has_run_a_plain_call_outside_of_lanes():
    cpu = replace(device("cpu-1", kind="cpu", concurrency=4, memory_bytes=None), lanes=1)
    spec = replace(function("f", run_s=1, cold_s=0, load_s=0, memory_bytes=0, share=0), instances=1)
    harness = make(devices=[cpu], functions=[spec])
    harness.ready(ask(harness, "plain"))
    assert of_type(Promise, ask(harness, "promised", 10))
    assert of_type(Dispatch, harness.finish("plain", at=1))[0].invocation == "promised"


def test_a_member_that_left_its_batch_is_not_ended_again_when_its_deadline_passes():
    batched = replace(function("f", run_s=1, cold_s=0, load_s=0), batch=2, times=Times(1, 0, 0, {2: 1.0}))
    harness = make(devices=[device("gpu-1", concurrency=1, memory_bytes=None)], functions=[batched])
    warm(harness, 1)
    ask(harness, "running", 100)
    ask(harness, "a", 3, late=Late.DROP)
    ask(harness, "b", 50)
    assert of_type(Run, harness.finish("running", at=harness.now + 1))[0].riders
    assert of_type(Fail, harness.send(InvocationCancelled("a")))
    assert not of_type(Fail, harness.send(Woke(), at=harness.now + 10))


def test_a_few_times_of_one_size_raise_its_bound_by_as_much_as_run_times_vary():
    window = TimeWindow()
    window.record(1.1, 0)
    assert window.raised(2.0, 0) == 2
    assert window.raised(1.0, 0) == pytest.approx(1.32)


def test_pins_that_keep_a_queued_call_out_for_ten_seconds_end_the_promises_until_it_ran():
    harness = make(
        devices=[device("gpu-1", concurrency=1, memory_bytes=4)],
        functions=[
            function("f", run_s=1, cold_s=0, load_s=0, memory_bytes=3),
            function("g", run_s=0.1, cold_s=0, load_s=0, memory_bytes=3),
        ],
    )
    harness.ready(ask(harness, "w", 100))
    harness.finish("w", at=harness.now + 1)
    ask(harness, "a0", 100)
    ask(harness, "plain", function_name="g")
    for number in range(1, 11):  # each is promised before the one before it ends
        assert of_type(Promise, ask(harness, f"a{number}", 100))
        (run,) = of_type(Dispatch, harness.finish(f"a{number - 1}", at=harness.now + 1))
        assert run.invocation == f"a{number}"
    (reject,) = of_type(Reject, ask(harness, "late", 100, at=harness.now + 0.5))
    assert reject.refusal.why is RefusalCause.DEADLINE
    commands = harness.finish("a10", at=harness.now + 0.5)
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["plain"]
    harness.ready(commands)
    harness.finish("plain", at=harness.now + 0.1)
    assert of_type(Promise, ask(harness, "b", 100, at=harness.now + 1))
