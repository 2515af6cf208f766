"""The keep-alive policy `hazard`: sandboxes are held while calls are likely, and started ahead of them."""

import pickle
from itertools import pairwise

import pytest

from aliquot.core.commands import Run, StartSandbox, StopSandbox, WakeAt
from aliquot.core.events import FunctionDeployed, FunctionRemoved, SandboxStarted, Woke
from aliquot.core.units import GIB
from aliquot.policies.keepalive.parts.call_hazard import MAX_GAP, CallHazard, CallHistory
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type

MINUTE_S = 60


class Shell:
    """Performs starts at once, and wakes the scheduler when it asks for it."""

    def __init__(self, *, price="0.02", functions=("f",), memory_bytes=10 * GIB, **params):
        self.harness = Harness(
            devices=[device(memory_bytes=memory_bytes, concurrency=8)],
            functions=[function(name) for name in functions],
            keepalive="hazard",
            params={"hazard": {"price": price, **params}},
        )
        self.log = []  # time and command
        self._wake_at = None

    def follow(self, commands):
        self.log += [(self.harness.now, command) for command in commands]
        for command in of_type(WakeAt, commands):
            self._wake_at = command.at
        if of_type(StartSandbox, commands):
            self.follow(self.harness.ready(commands))

    def advance(self, until):
        """Wake the scheduler as often as it asks for until then."""
        while self._wake_at is not None and self._wake_at <= until:
            at, self._wake_at = self._wake_at, None
            self.follow(self.harness.send(Woke(), at=at))
        self.harness.now = until

    def call(self, name, at):
        """Run a call at this time, and return its kind of start."""
        self.advance(at)
        commands = self.harness.call(name)
        self.follow(commands)
        self.follow(self.harness.finish(dispatched(commands)[0][0]))
        return dispatched(commands)[0][2]

    def times(self, kind):
        return [at for at, command in self.log if isinstance(command, kind)]


def test_a_regular_flow_is_stopped_between_its_calls_and_started_ahead_of_them():
    shell = Shell(price="0.03")
    starts = [shell.call("f", number * 20 * MINUTE_S) for number in range(40)]
    assert starts[0] == "cold"
    assert starts[-10:] == ["warm"] * 10
    shell.advance(40 * 20 * MINUTE_S)
    held = [begun for begun in shell.times(StartSandbox) if begun > 30 * 20 * MINUTE_S]
    stopped = [at for at in shell.times(StopSandbox) if at > 30 * 20 * MINUTE_S]
    assert len(held) >= 9
    assert len(stopped) >= 9
    assert all(at % (20 * MINUTE_S) >= 15 * MINUTE_S for at in held)


def test_a_start_ahead_and_a_stop_tell_the_chance_of_a_call():
    shell = Shell(price="0.03")
    for number in range(20):
        shell.call("f", number * 20 * MINUTE_S)
    reasons = [
        command.reason for _, command in shell.log if isinstance(command, StartSandbox) and command.invocation == ""
    ]
    assert "the chance of a call in 60 s is" in reasons[-1]
    assert all(
        not command.reason.startswith("keep-alive") for _, command in shell.log if isinstance(command, StopSandbox)
    )


def test_dear_memory_is_held_for_a_shorter_time_than_cheap_memory():
    held_s = {}
    for price in ("0.0001", "0.003", "0.05"):
        shell = Shell(price=price)
        for number in range(60):
            shell.call("f", (number * 7 + number % 5) * MINUTE_S)
        shell.log.clear()
        last = shell.harness.now
        shell.advance(last + 500 * MINUTE_S)
        held_s[price] = max([*shell.times(StopSandbox), last]) - last
    assert held_s["0.0001"] > held_s["0.003"] > held_s["0.05"]


def test_a_flow_that_is_never_called_again_is_forgotten_after_the_horizon():
    shell = Shell(horizon="30")
    shell.call("f", 0)
    shell.advance(1e6)
    assert shell.times(StopSandbox)
    assert max(at for at, _ in shell.log) < 40 * MINUTE_S
    assert not shell.harness.flow("f").sandboxes


def test_a_new_flow_begins_with_the_experience_of_the_others():
    shell = Shell(price="0.05", functions=("f", "new"))
    for number in range(60):
        shell.call("f", number * 3 * MINUTE_S)
    shell.call("new", 200 * MINUTE_S)
    hazard = shell.harness.scheduler.pool.keepalive
    shell.advance(203 * MINUTE_S)
    known = hazard.chance(shell.harness.flow("new"))
    alone = Shell(price="0.05")
    alone.call("f", 0)
    alone.advance(3 * MINUTE_S)
    assert known > 2 * alone.harness.scheduler.pool.keepalive.chance(alone.harness.flow("f"))


def test_as_many_sandboxes_are_held_as_calls_ran_at_once():
    shell = Shell(price="0.0001")
    harness = shell.harness
    for number in range(8):
        shell.advance(number * 2 * MINUTE_S)
        commands = harness.call("f", "f", "f")
        shell.follow(commands)
        for name, _, _ in dispatched(commands):
            shell.follow(harness.finish(name))
    shell.advance(harness.now + 2 * MINUTE_S)
    assert len(harness.flow("f").sandboxes) == 3
    for number in range(8, 40):
        shell.call("f", number * 2 * MINUTE_S)
    shell.advance(harness.now + 2 * MINUTE_S)
    assert len(harness.flow("f").sandboxes) == 1


def test_a_removed_function_leaves_nothing_behind():
    shell = Shell()
    shell.call("f", 0)
    shell.harness.send(FunctionRemoved("default", "f"), FunctionDeployed("default", function("f")))
    shell.advance(100 * MINUTE_S)
    assert shell.call("f", 100 * MINUTE_S) == "cold"


def test_the_same_calls_give_the_same_commands_after_a_snapshot():
    shell, again = Shell(price="0.03"), Shell(price="0.03")
    for number in range(10):
        for each in (shell, again):
            each.call("f", number * 20 * MINUTE_S)
    again.harness.scheduler = pickle.loads(pickle.dumps(again.harness.scheduler))  # noqa: S301 - its own snapshot
    for number in range(10, 20):
        for each in (shell, again):
            each.call("f", number * 20 * MINUTE_S)
    assert shell.log == again.log


def steps_of(calls, steps):
    """Return the chances that are predicted for a flow with calls in these steps, and its history."""
    hazard, history, chances = CallHazard(), CallHistory(0), []
    for step in range(steps):
        hazard.advance(history, step, 10)
        chances.append(history.chance)
        history.called = step in calls
    return chances, history


def test_the_chance_of_a_periodic_flow_is_high_at_its_period_and_low_elsewhere():
    chances, history = steps_of(set(range(0, 2000, 10)), 2000)
    assert min(chances[1950:2000:10]) > 0.9
    assert max(chance for step, chance in enumerate(chances) if step > 1900 and step % 10) < 0.02
    assert history.gaps == {10: 199}


def test_the_chance_of_a_random_flow_is_its_rate():
    calls = {step for step in range(6000) if hash((step, 1)) % 5 == 0}
    rate = sum(step >= 3000 for step in calls) / 3000
    chances, _ = steps_of(calls, 6000)
    assert sum(chances[3000:]) / 3000 == pytest.approx(rate, rel=0.15)


def test_a_long_absence_is_skipped_and_counts_as_the_longest_gap():
    hazard, history = CallHazard(), CallHistory(0)
    history.called = True
    hazard.advance(history, 10**9, 10)
    assert (history.step, history.last, history.past) == (10**9, 0, 0)
    history.called = True
    hazard.advance(history, 10**9 + 1, 10)
    assert history.gaps == {MAX_GAP: 1}
    assert 0 < history.chance < 1


def test_the_number_of_gaps_at_risk_is_that_of_gaps_at_least_as_long():
    calls = {0, 3, 6, 20, 27, 60}
    gaps = [later - earlier for earlier, later in pairwise(sorted(calls))]
    for skipped in (1, 1000):
        hazard, history = CallHazard(), CallHistory(0)
        for step in range(90):
            hazard.advance(history, step, skipped)
            history.called = step in calls
        age = 89 - 60
        assert history.at_risk == sum(gap >= age for gap in gaps)


def test_a_start_that_takes_longer_than_half_a_step_is_over_when_the_regular_call_comes():
    harness = Harness(
        devices=[device(memory_bytes=10 * GIB, concurrency=8)],
        functions=[function("f", cold_s=100)],
        keepalive="hazard",
        params={"hazard": {"price": "0.03"}},
    )
    queue, late = [(number * 20 * MINUTE_S, 1, "call", None) for number in range(30)], []
    while queue:  # a shell in which starts take their time
        queue.sort(key=lambda entry: entry[:2])
        at, _, what, about = queue.pop(0)
        if what == "call":
            commands = harness.call("f", at=at)
            late += [at] if dispatched(commands)[0][2] != "warm" else []
        elif what == "finish":
            commands = harness.finish(about, at=at)
        else:
            commands = harness.send(SandboxStarted(about) if what == "started" else Woke(), at=at)
        for command in commands:
            if isinstance(command, StartSandbox):
                queue.append((at + 100, 0, "started", command.sandbox))
            elif isinstance(command, Run):
                queue.append((at + 1, 0, "finish", command.invocation))
            elif isinstance(command, WakeAt) and command.at < 30 * 20 * MINUTE_S:
                queue = [entry for entry in queue if entry[2] != "wake"] + [(command.at, 2, "wake", None)]
    assert max(late) < 15 * 20 * MINUTE_S


def test_the_chance_of_a_later_step_is_what_it_will_be_if_no_call_comes_before():
    hazard, history = CallHazard(), CallHistory(0)
    for step in range(1, 200):
        history.called = step % 7 == 0
        hazard.advance(history, step + 1, 500)
    told = [hazard.later(history, steps) for steps in range(1, 5)]
    came = []
    for step in range(history.step + 1, history.step + 5):
        hazard.advance(history, step, 500)
        came.append(history.chance)
    assert told == pytest.approx(came, abs=0.05)
    assert max(told) > 10 * min(told)
