"""Executions of graphs in the scheduler: all stages are promised at once, or the whole is refused."""

from functools import partial

from aliquot.core.admission.records import Blame, Late, RefusalCause
from aliquot.core.commands import BreakPromise, Complete, Dispatch, Fail, Promise, Reject, StartSandbox
from aliquot.core.events import (
    DeviceLost,
    ExecutionArrived,
    ExecutionEnded,
    FunctionRemoved,
    GraphDeployed,
    InvocationArrived,
    StageSkipped,
    Woke,
)
from aliquot.core.model import GraphSpec, GraphStage, Times
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type

CHAIN = GraphSpec("chain", (GraphStage("one", "f"), GraphStage("two", "g", ("one",))))
FORK = GraphSpec(
    "fork",
    (
        GraphStage("first", "f"),
        GraphStage("left", "g", ("first",)),
        GraphStage("right", "g", ("first",), 0.5),
        GraphStage("last", "f", ("left", "right")),
    ),
)


def warm_function(name, run_s, **times):
    """Make a function whose starts take no time."""
    return function(name, run_s=run_s, cold_s=0, load_s=0, memory_bytes=0, **times)


def make(*, lanes=2, functions=None, graphs=(CHAIN, FORK), devices=None):
    """Make a scheduler with one device, and functions that run for one and for two seconds."""
    harness = Harness(
        "fcfs",
        devices=devices or [device("gpu-1", concurrency=lanes, memory_bytes=None)],
        functions=functions or [warm_function("f", 1), warm_function("g", 2)],
        admission="reservation",
        params={"reservation": {"margin_s": "0", "headroom": "false"}},
    )
    for graph in graphs:
        harness.send(GraphDeployed("default", graph))
    return harness


def execute(harness, name, graph="chain", deadline_s=None, **limits):
    return harness.send(ExecutionArrived(name, "default", graph, deadline_s, **limits))


def call(harness, execution, stage, function_name, at=None):
    event = InvocationArrived(f"{execution}.{stage}", "default", function_name, execution=execution, stage=stage)
    return harness.send(event, at=at)


def ready(harness, commands):
    """Start all sandboxes that were ordered."""
    found = list(commands)
    while of_type(StartSandbox, found):
        found = harness.ready(found)
    return harness


def test_all_stages_are_promised_at_once_and_their_sandboxes_start_ahead():
    harness = make()
    commands = execute(harness, "x", deadline_s=3)
    (promise,) = of_type(Promise, commands)
    assert (promise.invocation, promise.due, promise.ends, promise.kinds) == ("x", 3, 3, ("gpu",))
    assert [command.function for command in of_type(StartSandbox, commands)] == ["f", "g"]
    ready(harness, commands)
    assert of_type(Dispatch, call(harness, "x", "one", "f"))
    harness.finish("x.one", at=1)
    assert of_type(Dispatch, call(harness, "x", "two", "g"))
    assert of_type(Complete, harness.finish("x.two", at=3))
    harness.send(ExecutionEnded("x"))
    assert harness.scheduler.admitter.promises.kept == 1
    assert not harness.scheduler.admitter.executions.open


def test_what_does_not_fit_as_a_whole_is_refused_with_an_offer_that_is_taken():
    harness = make(lanes=1)
    ready(harness, execute(harness, "x", deadline_s=3))
    (reject,) = of_type(Reject, execute(harness, "y", deadline_s=4))
    assert reject.refusal.why is RefusalCause.DEADLINE
    assert reject.refusal.needs_s == 3
    offer = reject.refusal.offer
    assert offer.deadline_s == 6
    assert of_type(Promise, execute(harness, "z", deadline_s=offer.deadline_s))


def test_a_limit_that_idle_devices_cannot_keep_is_refused_for_ever_once_enough_is_known():
    harness = make()
    for number in range(9):
        ready(harness, execute(harness, f"w{number}", deadline_s=100))
        call(harness, f"w{number}", "one", "f")
        harness.finish(f"w{number}.one", at=harness.now + 1)
        call(harness, f"w{number}", "two", "g")
        harness.finish(f"w{number}.two", at=harness.now + 2)
        harness.send(ExecutionEnded(f"w{number}"))
    (reject,) = of_type(Reject, execute(harness, "x", deadline_s=2.5))
    assert reject.refusal.why is RefusalCause.NEVER
    (reject,) = of_type(Reject, execute(harness, "x", cost_limit=1))
    assert reject.refusal.why is RefusalCause.COST
    assert of_type(Promise, execute(harness, "x", cost_limit=reject.refusal.offer.cost))


def test_a_single_call_takes_no_place_that_a_later_stage_needs():
    harness = make(lanes=1)
    ready(harness, execute(harness, "x", deadline_s=3))
    call(harness, "x", "one", "f")
    assert of_type(Promise, harness.send(InvocationArrived("loose", "default", "f", 4)))
    (reject,) = of_type(Reject, harness.send(InvocationArrived("tight", "default", "f", 2)))
    assert reject.refusal.why is RefusalCause.DEADLINE


def test_a_skipped_stage_gives_its_place_back():
    harness = make(lanes=1)
    ready(harness, execute(harness, "x", "fork", deadline_s=6))
    call(harness, "x", "first", "f")
    harness.finish("x.first", at=1)
    assert of_type(Reject, harness.send(InvocationArrived("early", "default", "g", 4.5)))
    harness.send(StageSkipped("x", "right"))
    assert of_type(Promise, harness.send(InvocationArrived("y", "default", "g", 4.5)))


def test_stages_run_side_by_side_and_the_last_waits_for_both():
    harness = make()
    (promise,) = of_type(Promise, execute(harness, "x", "fork", deadline_s=4))
    assert promise.ends == 4
    assert of_type(Reject, execute(make(lanes=1), "x", "fork", deadline_s=5.9))


def test_the_cheapest_kinds_in_time_are_taken():
    functions = [
        warm_function("f", 1, times_by_kind={"cpu": Times(5, 0, 0)}),
        warm_function("g", 2, times_by_kind={"cpu": Times(4, 0, 0)}),
    ]
    devices = [device("gpu-1", concurrency=1, memory_bytes=None), device("cpu-1", kind="cpu", concurrency=2)]
    promised = partial(execute, make(devices=devices, functions=functions), graph="chain")
    kinds = {name: of_type(Promise, promised(name, deadline_s=limit_s))[0] for name, limit_s in (("a", 9), ("b", 5.5))}
    assert kinds["a"].kinds == ("cpu",)
    assert kinds["b"].kinds == ("gpu", "cpu")
    assert kinds["a"].cost < kinds["b"].cost


def test_nothing_is_known_so_one_execution_is_tried_and_others_are_refused():
    unknown = [warm_function("f", None), warm_function("g", 2)]
    harness = make(functions=unknown)
    assert not of_type(Reject, execute(harness, "probe", deadline_s=5))
    (reject,) = of_type(Reject, execute(harness, "x", deadline_s=5))
    assert reject.refusal.why is RefusalCause.UNKNOWN
    ready(harness, call(harness, "probe", "one", "f"))
    harness.finish("probe.one", at=1)
    harness.send(ExecutionEnded("probe"))
    assert of_type(Promise, execute(harness, "y", deadline_s=50))


def test_a_stage_that_runs_too_long_breaks_the_promise_of_the_execution_once():
    harness = make(lanes=1)
    ready(harness, execute(harness, "x", deadline_s=3))
    call(harness, "x", "one", "f")
    commands = harness.send(Woke(), at=2.9)
    (broken,) = of_type(BreakPromise, commands)
    assert broken.invocation == "x"
    assert not of_type(BreakPromise, harness.finish("x.one", at=3.5))
    assert of_type(Dispatch, call(harness, "x", "two", "g"))
    assert harness.scheduler.admitter.promises.kept == 0


def test_a_stage_that_overruns_is_to_blame_for_the_stages_after_it():
    harness = make(lanes=1)
    ready(harness, execute(harness, "x", deadline_s=3))
    call(harness, "x", "one", "f")
    (broken,) = of_type(BreakPromise, harness.send(Woke(), at=2.9))
    assert broken.blame is Blame.OWN_RUN


def test_a_lost_device_and_a_removed_function_break_the_promise():
    harness = make()
    ready(harness, execute(harness, "x", deadline_s=3))
    (broken,) = of_type(BreakPromise, harness.send(DeviceLost("gpu-1")))
    assert (broken.invocation, broken.blame) == ("x", Blame.LOST)
    harness = make()
    ready(harness, execute(harness, "x", deadline_s=3))
    (broken,) = of_type(BreakPromise, harness.send(FunctionRemoved("default", "g")))
    assert (broken.invocation, broken.blame) == ("x", Blame.PLATFORM)


def test_a_broken_execution_that_is_dropped_ends_its_calls():
    harness = make(lanes=1)
    ready(harness, execute(harness, "x", deadline_s=3, late=Late.DROP))
    commands = harness.send(FunctionRemoved("default", "g"))
    assert of_type(BreakPromise, commands)
    assert of_type(Reject, call(harness, "x", "one", "f"))
    harness = make(lanes=1)
    ready(harness, execute(harness, "x", "fork", deadline_s=6, late=Late.DROP))
    call(harness, "x", "first", "f")
    harness.finish("x.first", at=1)
    call(harness, "x", "left", "g")
    call(harness, "x", "right", "g")
    assert of_type(Fail, harness.send(Woke(), at=5.5))
