"""Data structures of the policies and the report, compared with slow and obvious versions."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot.core.clock import after, between
from aliquot.core.model import FlowKey
from aliquot.policies.queueing.parts.blocked_flows import BlockedFlows
from aliquot.policies.queueing.parts.flow_heap import FlowHeap
from aliquot.policies.queueing.parts.virtual_time import FairClock, FairWindow
from aliquot.sim import fairness
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.fairness import FairnessMeter
from aliquot.sim.statistics import quantile


class Numbered:
    def __init__(self, index):
        self.index = index


@given(st.lists(st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 9))), max_size=300))
def test_a_flow_heap_is_a_sorted_dictionary(changes):
    heap, model = FlowHeap(), {}
    flows = [Numbered(index) for index in range(7)]
    for index, key in changes:
        if key is None:
            heap.discard(flows[index])
            model.pop(index, None)
        else:
            heap.set(flows[index], float(key))
            model[index] = float(key)
        best = min(model.items(), key=lambda entry: (entry[1], entry[0]), default=None)
        assert (heap.first() and heap.first().index, heap.first_key()) == (best or (None, None))
        assert len(heap._heap) <= 64 + 4 * 7


class SlowClock:
    """A fair clock by its definition, which scans all members every time."""

    def __init__(self, window):
        self.now, self.window, self.starts, self.urgency, self.passed_over = 0, window, {}, {}, set()

    def advance(self):
        self.now = max([self.now, *(min(self.starts[w] for w in self.urgency) for _ in range(bool(self.urgency)))])

    def wait(self, index, urgency):
        if index not in self.urgency:
            self.advance()
            self.starts[index] = max(self.starts.get(index, self.now), self.now)
        self.urgency[index] = urgency
        self.passed_over.discard(index)

    def first(self):
        self.advance()
        eligible = [
            (urgency, index)
            for index, urgency in self.urgency.items()
            if index not in self.passed_over and self.starts[index] - self.now <= self.window.size
        ]
        throttled = self.now + (math.inf if self.window.throttle is None else self.window.throttle * self.window.size)
        waiting = [(self.starts[index], index) for index in self.urgency if index not in self.passed_over]
        waiting = [(start, index) for start, index in waiting if start <= throttled]
        if eligible or self.window.claims:
            return min(eligible, default=(None, None))[1]
        return min(waiting, default=(None, None))[1]

    def charge(self, index, amount):
        """Charge a dispatch, which adds up to a bounded lead beyond the window."""
        throttle, size = self.window.throttle, self.window.size
        bound = max(size, self.window.max_lead if throttle is None else throttle * size)
        self.starts[index] = min(self.starts.get(index, self.now), self.now + bound) + amount


clock_changes = st.tuples(
    st.sampled_from(["wait", "rest", "charge", "correct", "pass_over", "window", "claim"]),
    st.integers(0, 5),
    st.integers(-3, 9),
)


@given(st.lists(clock_changes, max_size=400), st.sampled_from([0, 9]), st.sampled_from([None, 1, 3]))
def test_a_fair_clock_chooses_as_a_full_scan_would(changes, max_lead, throttle):
    window = FairWindow(4, max_lead, throttle)
    clock, model = FairClock(window), SlowClock(window)
    members = [Numbered(index) for index in range(6)]
    for what, index, amount in changes:
        urgency = (amount, index)
        match what:
            case "wait":
                clock.set_waiting(members[index], urgency)
                model.wait(index, urgency)
            case "rest":
                clock.set_idle(members[index])
                model.urgency.pop(index, None)
                model.passed_over.discard(index)
            case "charge" | "correct":
                if what == "charge":
                    clock.charge(members[index], abs(amount))
                    model.charge(index, abs(amount))
                else:
                    clock.correct(members[index], amount)
                    model.starts[index] = model.starts.get(index, model.now) + amount
                if index in model.urgency:
                    clock.set_waiting(members[index], urgency)
                    model.wait(index, urgency)
            case "pass_over" if index in model.urgency:
                clock.pass_over(members[index])
                model.passed_over.add(index)
            case "window":
                window.resize(max(0, amount), window.max_lead)
            case "claim":
                window.claims = {index: None} if amount > 5 else {}
        first = clock.first()
        assert (first and first.index) == model.first()
        assert (clock.now, clock.starts) == (model.now, model.starts)
        assert not list(clock.violations())
        assert len(clock._by_start) <= 64 + 4 * 6


def test_a_member_that_is_charged_again_and_again_is_listed_once_or_twice():
    """Each outdated entry would be corrected with every charge."""
    clock, members = FairClock(FairWindow(4)), [Numbered(index) for index in range(2)]
    clock.set_waiting(members[1], (0, 1))
    for number in range(200):
        member = members[number % 2]
        clock.charge(member, 1.0)
        clock.set_waiting(member, (0, member.index))
        assert clock.first() is not None
        assert len(clock._by_start) <= 4


@given(st.lists(clock_changes, max_size=100), st.integers(0, 5))
@example([("wait", 0, 0), ("charge", 4, 5), ("pass_over", 0, 0)], 4)
def test_the_only_choice_would_be_first_if_it_waited(changes, index):
    clock = FairClock(FairWindow(4))
    members = [Numbered(number) for number in range(6)]
    for what, number, amount in changes:
        match what:
            case "wait":
                clock.set_waiting(members[number], (amount, number))
            case "rest":
                clock.set_idle(members[number])
            case "charge" if number not in clock._urgency:
                clock.starts[number] = clock.starts.get(number, clock.now) + amount
            case "pass_over" if number in clock._urgency:
                clock.pass_over(members[number])
    only = clock.is_only_choice(members[index])
    tags = clock.now, clock.starts.get(index)
    others = len(clock._urgency.keys() - clock._passed_over)
    clock.set_waiting(members[index], (0, index))
    would_be = not others and clock.first() is members[index]
    assert only == (would_be and not clock.is_ahead(members[index]))
    if only:
        assert (clock.now, clock.starts[index]) == tags


class FakeView:
    def __init__(self, now, *freed):
        self.now, self.freed = now, dict.fromkeys(freed)


def test_a_blocked_flow_is_ready_when_its_device_frees_something_or_its_time_comes():
    flows, devices = [Numbered(index) for index in range(4)], [Numbered(0), Numbered(1)]
    blocked = BlockedFlows()
    blocked.add(flows[0], devices[:1], 10)
    blocked.add(flows[1], devices, math.inf)
    blocked.add(flows[2], (), 5)
    blocked.add(flows[3], None, math.inf)
    assert not blocked.ready(FakeView(1))
    assert [*blocked.ready(FakeView(1, 7))] == [flows[3]]
    assert [*blocked.ready(FakeView(1, 1))] == [flows[3], flows[1]]
    blocked.discard(flows[1])
    blocked.discard(flows[3])
    assert not blocked.ready(FakeView(1, 1))
    assert [*blocked.ready(FakeView(5))] == [flows[2]]
    assert [*blocked.ready(FakeView(5, 0))] == [flows[0]]
    assert blocked.take_all() == [flows[0], flows[2]]
    assert not blocked.ready(FakeView(99, 0, 1))


A, B, C = (FlowKey("t", name) for name in "abc")


@st.composite
def histories(draw):
    """Return changes of backlog and service of three flows at whole seconds, and their weights."""
    weights = {key: draw(st.sampled_from([1, 2, 0.5])) for key in (A, B, C)}
    queued, running = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)
    changes = []
    for moment in range(draw(st.integers(1, 30))):
        for _ in range(draw(st.integers(0, 3))):
            key = draw(st.sampled_from([A, B, C]))
            what = draw(st.sampled_from(["enqueue", "dequeue", "start", "stop"]))
            if (what == "dequeue" and not queued[key]) or (what == "stop" and not running[key]):
                continue
            queued[key] += {"enqueue": 1, "dequeue": -1}.get(what, 0)
            running[key] += {"start": 1, "stop": -1}.get(what, 0)
            changes.append((moment, what, key))
    end = 31
    changes += [(end, "dequeue", key) for key in queued for _ in range(queued[key])]
    changes += [(end, "stop", key) for key in running for _ in range(running[key])]
    return weights, changes


def replay(weights, changes):
    """Return the result of the meter."""
    meter = FairnessMeter(weights)
    for moment, what, key in changes:
        flow = meter.flow(key)
        match what:
            case "enqueue":
                meter.enqueued(flow, moment)
            case "dequeue":
                meter.dequeued(flow, moment)
            case "start":
                meter.rate_changed(flow, 0.5, moment)
            case "stop":
                meter.rate_changed(flow, -0.5, moment)
    return meter


def slow_verdict(weights, changes):  # noqa: C901, PLR0912 - as plain as the definitions
    """Compute the same from the definitions, for every second, pair and window."""
    queued, running = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)
    seconds = []
    for second in range(31):
        for moment, what, key in changes:
            if moment == second:
                queued[key] += {"enqueue": 1, "dequeue": -1}.get(what, 0)
                running[key] += {"start": 1, "stop": -1}.get(what, 0)
        seconds.append({key: (queued[key] > 0, 0.5 * running[key]) for key in weights})
    # A flow that was empty for an instant within a moment starts a new window there.
    breaks = {key: set() for key in weights}
    queued = dict.fromkeys(weights, 0)
    for moment, what, key in changes:
        queued[key] += {"enqueue": 1, "dequeue": -1}.get(what, 0)
        if what == "dequeue" and not queued[key]:
            breaks[key].add(moment)
    gap = 0.0
    for one in weights:
        for other in weights:
            for begin in range(31):
                difference = 0.0
                for end in range(begin, 31):
                    if end > begin and (end in breaks[one] or end in breaks[other]):
                        break
                    if not (seconds[end][one][0] and seconds[end][other][0]):
                        break
                    difference += seconds[end][one][1] / weights[one] - seconds[end][other][1] / weights[other]
                    gap = max(gap, difference)
    got, due = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0.0)
    for second in seconds:
        backlogged = [key for key in weights if second[key][0]]
        if len(backlogged) > 1:
            rate = sum(second[key][1] for key in backlogged)
            for key in backlogged:
                got[key] += second[key][1]
                due[key] += rate * weights[key] / sum(weights[other] for other in backlogged)
    spread = sum(got[key] ** 2 / due[key] for key in weights if due[key] > 0)
    total = sum(got[key] for key in weights if due[key] > 0)
    jain = total**2 / (sum(due.values()) * spread) if spread else 1.0
    return gap, jain


@given(histories())
def test_the_fairness_meter_agrees_with_the_definitions(history):
    meter = replay(*history)
    gap, jain = slow_verdict(*history)
    assert meter.max_gap_s == pytest.approx(gap, abs=1e-9)
    assert fairness.jain_of_meters([meter]) == pytest.approx(jain, abs=1e-9)


@given(st.lists(st.decimals(0, 10_000, places=6), min_size=1, max_size=50))
def test_sums_on_the_time_grid_are_those_of_decimal_arithmetic(durations):
    now, exact = 0.0, 0
    for duration in durations:
        now = after(now, float(duration))
        exact += duration
        assert now == float(exact)
    assert between(float(durations[0]), now) == float(exact - durations[0])


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_lies_between_its_neighbours(values, q):
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    assert ordered[math.floor(place)] <= quantile(ordered, q) + 1e-9
    assert quantile(ordered, q) <= ordered[math.ceil(place)] + 1e-9


@given(st.integers(1, 12))
def test_the_interference_curve_goes_through_its_points_and_never_falls(running):
    curve = InterferenceCurve(V100_STRETCH)
    if running in V100_STRETCH:
        assert curve.stretch(running) == V100_STRETCH[running]
    assert curve.stretch(running + 1) > curve.stretch(running)
