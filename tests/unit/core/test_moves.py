"""Moves of sandboxes between devices: live, by a hand-over, asked by the operator, and by forecasts."""

import pytest
from msgspec.structs import replace

from aliquot.core.commands import Complete, Move, StartSandbox, StopSandbox
from aliquot.core.errors import EventError
from aliquot.core.events import (
    DemandForecast,
    DemandRow,
    DeviceLost,
    FunctionDeployed,
    FunctionRemoved,
    MoveAsked,
    MoveFailed,
    RunFinished,
    SandboxLost,
    SandboxMoved,
    SandboxStarted,
)
from aliquot.core.units import GIB
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type

HALF = function("half", share=0.5)


def harness(*functions, movable=True, memory_bytes=10 * GIB, count=2, policy="fair_resident", **more):
    """Return a harness with devices of one kind, and the functions deployed."""
    devices = [
        replace(device(f"gpu-{number}", memory_bytes=memory_bytes, concurrency=4), movable=movable)
        for number in range(1, count + 1)
    ]
    return Harness(policy, devices=devices, functions=functions or [HALF], keepalive="none", **more)


def warm(it, name="half"):
    """Call a function once, and return its sandbox, which is idle then."""
    commands = it.call(name)
    it.ready(commands)
    it.finish(dispatched(commands)[0][0])
    return of_type(StartSandbox, commands)[0].sandbox


def place(it, number):
    return it.scheduler.pool.sandboxes[number].device.spec.name


def used(it, name):
    found = it.scheduler.registry.device(name)
    return found.running, found.shares_used, found.resident_bytes


def test_an_idle_sandbox_moves_with_its_memory_and_is_warm_there():
    it = harness()
    number = warm(it)
    (move,) = of_type(Move, it.send(MoveAsked(number, "gpu-2")))
    assert (move.move, move.sandbox, move.to, move.reason) == (1, number, ("gpu-2",), "the operator asked for it")
    assert used(it, "gpu-1") == (0, 0, GIB)
    assert used(it, "gpu-2") == (1, 0.5, GIB)  # reserved before it is freed there
    it.send(SandboxMoved(move.move))
    assert used(it, "gpu-1") == (0, 0, 0)
    assert used(it, "gpu-2") == (0, 0, GIB)
    assert dispatched(it.call("half")) == [("1", "gpu-2", "warm")]


@pytest.mark.parametrize("policy", ["fair_resident", "fcfs", "exclusive"])
def test_a_sandbox_moves_in_the_midst_of_a_run_and_frees_its_slot_where_it_was(policy):
    it = harness(policy=policy)
    number = warm(it)
    it.call("half")
    (move,) = of_type(Move, it.send(MoveAsked(number, "gpu-2")))
    it.send(SandboxMoved(move.move))
    assert used(it, "gpu-1") == (0, 0, 0)
    assert used(it, "gpu-2") == (1, 0.5, GIB)
    assert of_type(Complete, it.send(RunFinished("1", number, 1)))
    assert used(it, "gpu-2") == (0, 0, GIB)


def test_a_run_may_begin_and_end_while_its_sandbox_moves():
    it = harness()
    number = warm(it)
    (move,) = of_type(Move, it.send(MoveAsked(number, "gpu-2")))
    assert dispatched(it.call("half")) == [("1", "gpu-1", "warm")]
    it.finish("1")
    it.call("half")
    it.send(SandboxMoved(move.move))
    it.finish("2")
    assert place(it, number) == "gpu-2"


def test_a_move_that_fails_leaves_everything_as_it_was():
    it = harness()
    number = warm(it)
    (move,) = of_type(Move, it.send(MoveAsked(number, "gpu-2")))
    it.send(MoveFailed(move.move, "no control group"))
    assert place(it, number) == "gpu-1"
    assert used(it, "gpu-2") == (0, 0, 0)
    assert not it.send(SandboxMoved(move.move))  # late


@pytest.mark.parametrize(
    "event",
    [
        lambda number: SandboxLost(number, "it died"),
        lambda _: DeviceLost("gpu-1"),
        lambda _: DeviceLost("gpu-2"),
        lambda _: FunctionRemoved("default", "half"),
        lambda _: FunctionDeployed("default", replace(HALF, memory_bytes=2 * GIB)),
    ],
)
def test_what_is_reserved_is_given_back_when_the_sandbox_or_a_device_is_gone(event):
    it = harness()
    number = warm(it)
    (move,) = of_type(Move, it.send(MoveAsked(number, "gpu-2")))
    it.send(event(number))
    it.send(SandboxMoved(move.move))  # the shell did not know
    for name in it.scheduler.registry.devices:
        assert used(it, name)[:2] == (0, 0)


def test_where_no_process_can_move_another_sandbox_takes_over_once_it_is_warm():
    it = harness(movable=False)
    number = warm(it)
    it.call("half")
    (start,) = of_type(StartSandbox, it.send(MoveAsked(number, "gpu-2")))
    assert (start.place, start.invocation) == (("gpu-2",), "")
    assert it.scheduler.foresight.moves.refusal(number, "gpu-2") == "it is moving already"
    assert not of_type(StopSandbox, it.send(SandboxStarted(start.sandbox)))  # the old one ends its run
    assert dispatched(it.call("half")) == [("2", "gpu-2", "warm")]
    (stop,) = of_type(StopSandbox, it.finish("1"))
    assert (stop.sandbox, stop.reason) == (number, f"its calls go to sandbox {start.sandbox} on gpu-2")


def test_a_hand_over_whose_start_fails_leaves_the_old_sandbox():
    it = harness(movable=False)
    number = warm(it)
    (start,) = of_type(StartSandbox, it.send(MoveAsked(number, "gpu-2")))
    it.send(SandboxLost(start.sandbox, "an import failed"))
    assert dispatched(it.call("half")) == [("1", "gpu-1", "warm")]
    it.finish("1")
    assert it.scheduler.foresight.moves.refusal(number, "gpu-2") is None


def test_a_refusal_says_why():
    it = harness(HALF, replace(function("host", share=0), name="host"), function("large", memory_bytes=10 * GIB))
    moves, number = it.scheduler.foresight.moves, warm(it)
    assert moves.refusal(99, "gpu-2") == "there is no sandbox 99"
    assert moves.refusal(number, "gpu-9") == "there is no device gpu-9; there are gpu-1, gpu-2"
    assert moves.refusal(number, "gpu-1") == "it is on gpu-1 already"
    it.call("large")
    assert moves.refusal(number, "gpu-2") == "gpu-2 has no room for it without an eviction"
    assert not it.send(MoveAsked(number, "gpu-2"))


def test_an_answer_to_a_move_that_never_was_is_refused():
    it = harness()
    with pytest.raises(EventError, match="there never was a move 1"):
        it.send(SandboxMoved(1))


def forecast(*highs):
    rows = [DemandRow("default", name, 0.9, 60, 0, 1, high, 0) for name, high in highs]
    return DemandForecast(tuple(rows), 180)


def test_a_device_that_forecasts_exceed_three_times_gives_a_sandbox_to_one_with_twice_the_room():
    it = harness(HALF, function("other", share=0.4), provisioning="forecast")
    numbers = {warm(it, "half"), warm(it, "other")}
    it.now = 100
    expected = forecast(("half", 2.0), ("other", 1.0))
    on_one = [number for number in numbers if place(it, number) == "gpu-1"]
    assert len(on_one) == 2
    moves = []
    for tick in range(3):
        moves = of_type(Move, it.send(expected, at=100 + 10 * tick))
        assert bool(moves) == (tick == 2)
    assert moves[0].to == ("gpu-2",)
    assert "of gpu-1 is foreseen to be needed, 1 is there, and gpu-2 has 1 left" in moves[0].reason
    it.send(SandboxMoved(moves[0].move))
    for tick in range(3, 6):
        assert not of_type(Move, it.send(forecast(("half", 1.0), ("other", 1.0)), at=100 + 10 * tick))
