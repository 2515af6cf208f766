"""The timeline of every call under random failures: no gap, no overlap, and the end that the core commanded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import examples_divided_by

from aliquot.core.events import InvocationArrived
from aliquot.core.units import GIB
from aliquot.live.history.index.journal_index import JournalIndex
from aliquot.live.history.records import CallEnd, Phase, for_tenant
from aliquot.live.history.tracking import CallTracker
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.chaos import ChaosShell
from aliquot.testing.harness import Harness

ENDS = {"Complete": CallEnd.COMPLETED, "Fail": CallEnd.FAILED, "Reject": CallEnd.REFUSED}


class FollowedHarness(Harness):
    """A harness that follows every call as a replay of the journal would."""

    def __init__(self, *arguments, **options):
        self.trackers = {}
        self.index = JournalIndex()
        super().__init__(*arguments, **options)

    def send(self, *events, at=None):
        commands = super().send(*events, at=at)
        for event in events:
            if isinstance(event, InvocationArrived) and event.invocation not in self.trackers:
                self.trackers[event.invocation] = CallTracker(event.invocation)
                self.trackers[event.invocation].begin_run(self.scheduler)
        step = JournalStep(0, self.now, list(events), commands)
        self.index.take(step, self.now)
        for tracker in self.trackers.values():
            if not tracker.has_ended:
                tracker.take(step, self.scheduler, self.now)
        return commands


@pytest.mark.parametrize("policy", sorted(QUEUEING))
@examples_divided_by(12)
@given(seed=st.integers(0, 2**32))
def test_the_pieces_of_a_call_follow_each_other(policy, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aliquot.testing.chaos.Harness", FollowedHarness)
        chaos = ChaosShell(
            policy,
            devices=[
                device("gpu-1", concurrency=2, memory_bytes=4 * GIB),
                device("cpu-1", kind="cpu", concurrency=2, memory_bytes=None),
            ],
            functions=[
                function("small"),
                function("large", memory_bytes=3 * GIB, share=0.7, run_s=5),
                replace(function("host", share=0), runs_ahead=True),
                replace(function("few"), instances=1),
                replace(function("together", share=0.5), batch=4),
            ],
            seed=seed,
            keepalive="fixed_ttl",
            params={"fixed_ttl": {"ttl_s": "5"}},
        )
        chaos.run_steps(60)
    trackers = chaos._harness.trackers
    assert len(trackers) > 5
    for name, command in chaos.ended.items():
        timeline = trackers[name].timeline()
        assert timeline.end is ENDS[command]
        at = timeline.arrived
        for piece in timeline.pieces:
            assert piece.start == at
            assert piece.end >= piece.start
            assert bool(piece.cause) == (piece.phase is Phase.WAIT)
            at = piece.end
        assert at == timeline.ended
        if timeline.end is CallEnd.COMPLETED:
            assert timeline.pieces[-1].phase is Phase.RUN or timeline.seconds_of(Phase.RUN) == 0
            assert timeline.dispatches
        other = for_tenant(timeline, "stranger")
        assert {held.namespace for piece in other.pieces for held in piece.holders} <= {"others"}
    check_index(chaos._harness.index, trackers, chaos.ended)


def check_index(index, trackers, ended):
    """The index has the same times as the replay of each call, and its sandboxes do one thing at a time."""
    for name in ended:
        timeline, call = trackers[name].timeline(), index.calls[name]
        assert (call.arrived, call.ended, call.end) == (timeline.arrived, timeline.ended, timeline.end)
        assert call.dispatched == (timeline.dispatches[-1].at if timeline.dispatches else None)
        if call.dispatched is not None:
            assert call.wait_s + (call.ended - call.dispatched) == pytest.approx(call.duration_s)
    until = {}
    for one in sorted(each for each in index.sandboxes.slices):
        assert one.begin >= until.get(one.sandbox, 0)
        until[one.sandbox] = one.end
    whole = index.series.read("", ["arrivals", "ended"], 0, 3599, 60).values
    assert sum(whole["arrivals"]) == len(index.calls)
    assert sum(whole["ended"]) == sum(call.ended is not None for call in index.calls.newest_first())
