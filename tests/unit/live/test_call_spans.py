"""The spans of calls, and the choice of calls that have some."""

import random

from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.history.spans import sampling
from aliquot.live.history.spans.calls import EndedCall, SpanStatus, spans_of
from aliquot.live.history.spans.sampling import DurationQuantile, TailSampler
from aliquot.live.invocations.trace_context import TraceContext, begin_trace, span_of

NOW = 1_790_000_000.0
IDS = (f"{1_790_000_000_000 + number:012x}{random.Random(number).getrandbits(80):020x}" for number in range(10**9))


def ended(*, at=NOW, took=0.1, start="warm", failed=False, trace=None, action="f", **more):
    run = {"dispatched": at + 0.01, "began": at + 0.02, "finished": at + took - 0.001, **more}
    return EndedCall(next(IDS), "guest", action, at, ended=at + took, start=start, failed=failed, trace=trace, **run)


def by_name(call):
    return {span.name: span for span in spans_of(call)}


def test_a_cold_call_has_a_span_for_each_phase_and_they_follow_each_other():
    call = ended(start="cold", took=1.0, gateway_s=0.005, devices=("gpu0",), reason="most urgent")
    spans = by_name(call)
    assert list(spans) == ["f", "admit", "queue", "start", "run", "record"]
    whole, *parts = spans.values()
    assert (whole.trace_id, whole.span_id, whole.parent, whole.kind) == (call.id, span_of(call.id), "", "server")
    assert {part.parent for part in parts} == {whole.span_id}
    assert len({span.span_id for span in spans.values()}) == 6
    assert [part.begin_ns for part in parts] == [whole.begin_ns, *(part.end_ns for part in parts[:-1])]
    assert parts[-1].end_ns == whole.end_ns
    assert whole.attributes["faas.name"] == "guest/f"
    assert (whole.attributes["faas.invocation_id"], whole.attributes["faas.coldstart"]) == (call.id, True)
    assert spans["queue"].attributes == {"aliquot.reason": "most urgent"}


def test_a_warm_call_has_no_start_and_a_loaded_one_has_a_load():
    assert list(by_name(ended())) == ["f", "queue", "run", "record"]
    assert list(by_name(ended(start="load"))) == ["f", "queue", "load", "run", "record"]


def test_a_call_that_was_never_dispatched_waited_until_its_end():
    call = ended(start="", dispatched=None, began=None, finished=None, failed=True, error="no room")
    whole, queue = spans_of(call)
    assert (whole.status, whole.message) == (SpanStatus.ERROR, "no room")
    assert (queue.name, queue.begin_ns, queue.end_ns) == ("queue", whole.begin_ns, whole.end_ns)


def test_a_part_of_a_trace_names_the_call_that_made_it():
    trace = TraceContext("a" * 32, "b" * 16, sampled=True, state="v=1")
    whole, *parts = spans_of(ended(trace=trace))
    assert (whole.trace_id, whole.parent, whole.state) == ("a" * 32, "b" * 16, "v=1")
    assert {(part.trace_id, part.parent) for part in parts} == {("a" * 32, whole.span_id)}


@given(st.lists(st.one_of(st.none(), st.floats(0, 50)), min_size=3, max_size=3), st.floats(0, 60),
       st.sampled_from(["", "warm", "load", "cold"]))  # fmt: skip
def test_spans_lie_within_their_call_and_are_the_same_when_they_are_made_again(times, took, start):
    moments = [None if time is None else NOW + min(time, took) for time in times]
    for first, second in ((0, 1), (1, 2)):
        if moments[first] is None or (moments[second] is not None and moments[second] < moments[first]):
            moments[second] = None
    call = ended(took=took, start=start, dispatched=moments[0], began=moments[1], finished=moments[2])
    whole, *parts = made = spans_of(call)
    assert made == spans_of(call)
    assert all(whole.begin_ns <= part.begin_ns <= part.end_ns <= whole.end_ns for part in parts)


def test_failed_cold_and_sampled_calls_are_chosen_and_usual_ones_are_not():
    sampler = TailSampler()
    sampled = TraceContext("a" * 32, "b" * 16, sampled=True)
    for call in (ended(failed=True), ended(start="cold"), ended(trace=sampled)):
        assert sampler.take(call) == [call]
    assert sampler.take(ended()) == []


def test_a_call_beyond_the_percentile_of_its_own_function_is_chosen():
    sampler, chance = TailSampler(), random.Random(3)
    chosen = sum(bool(sampler.take(ended(took=chance.uniform(0.01, 0.02), action="fast"))) for _ in range(3000))
    assert 0 < chosen < 60  # one in a hundred, and some while little was known
    assert sampler.take(ended(took=0.04, action="fast"))
    assert not sampler.take(ended(took=0.04, action="another"))


@given(st.floats(0, 1), st.integers(0, 5))
def test_a_fraction_of_the_rest_is_chosen_by_the_trace(fraction, seed):
    chance = random.Random(seed)
    sampler, other = TailSampler(fraction), TailSampler(fraction)
    calls = [ended()._replace(id=f"{chance.getrandbits(128):032x}") for _ in range(400)]
    found = [bool(sampler.take(call)) for call in calls]
    assert found == [bool(other.take(call)) for call in calls]
    assert abs(sum(found) - 400 * fraction) < 60
    part = ended(trace=begin_trace(calls[0].id))
    assert bool(sampler.take(part)) is found[0]


def test_the_parts_of_a_trace_are_sent_with_the_one_that_is_chosen():
    sampler = TailSampler()
    root = ended(took=1)
    early, failed, late = (ended(trace=begin_trace(root.id), failed=bad) for bad in (False, True, False))
    assert sampler.take(early) == []
    assert sampler.take(failed) == [early, failed]
    assert sampler.take(late) == [late]
    assert sampler.take(root) == [root]


def test_parts_are_forgotten_with_the_end_of_their_trace_or_after_a_while(monkeypatch):
    sampler = TailSampler()
    roots = [ended(took=1) for _ in range(3)]
    sampler.take(ended(trace=begin_trace(roots[0].id)))
    sampler.take(roots[0])
    assert sampler.take(ended(trace=begin_trace(roots[0].id), failed=True))[1:] == []
    sampler.take(ended(trace=begin_trace(roots[1].id)))
    late = NOW + sampling.WAIT_S + 2
    assert len(sampler.take(ended(at=late, trace=begin_trace(roots[1].id), failed=True))) == 1
    monkeypatch.setattr(sampling, "MAX_WAITING_CALLS", 5)
    for _ in range(20):
        sampler.take(ended(at=late, trace=begin_trace(next(IDS))))
    assert sampler._count <= 6
    assert sampler._count == sum(map(len, sampler._waiting.values()))


def test_the_percentile_follows_a_function_that_changes():
    quantile, chance = DurationQuantile(), random.Random(1)
    for _ in range(2000):
        quantile.is_beyond(chance.uniform(0.01, 0.02))
    assert quantile.is_beyond(1.0)
    found = [quantile.is_beyond(chance.uniform(0.9, 1.0)) for _ in range(6000)]
    assert sum(found[-1000:]) < 30
