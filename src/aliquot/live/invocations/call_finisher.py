"""The ends of calls: from what came of a run to its record, with what the run had of the storage fabric."""

from collections.abc import Callable

from msgspec.structs import replace

from aliquot.live.datasets.readers import Readers
from aliquot.live.invocations.activations import Recorder, failure
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.dataset_annotations import notes_of
from aliquot.live.invocations.ledger import Ledger, now_ms
from aliquot.live.node.base import Outcome, Status
from aliquot.live.node.logs import error_line
from aliquot.live.store.records import Activation
from aliquot.runtime.answers import too_long
from aliquot.storage.messages import RunSettled


class CallFinisher:
    def __init__(self, policies: str, ledger: Ledger, readers: Readers, now: Callable[[], float]) -> None:
        self._recorder = Recorder(policies)
        self.forget = self._recorder.forget
        self._ledger = ledger
        self._readers = readers
        self._now = now  # by the platform's clock

    def end(self, call: Call, outcome: Outcome) -> None:
        """Its outcome is settled. What has read datasets waits a moment for what the agent has to say of it."""
        call.outcome = outcome = _kept(call, outcome)
        if call.reads is None:
            self._ledger.end(call, self._record(call, outcome, self._now()))
            return
        call.ended, ended_s = True, self._now()

        def settled(told: RunSettled | str) -> None:
            call.notes += notes_of(told)
            error = told.error if isinstance(told, RunSettled) else told
            line = error_line(error) if error else ""
            if line:  # the function itself has seen a number, at most
                call.printed(line)
            whole = replace(outcome, logs=(*outcome.logs, line)) if line else outcome
            self._ledger.end(call, self._record(call, whole, ended_s))

        self._readers.end_run(call.reads, call.id, settled)

    def unbegun(self, call: Call, reason: str) -> Activation:
        """The record of a call that was accepted by an earlier server and cannot run."""
        call.arrived_s = self._now()
        call.outcome = failure(Status.INTERNAL_ERROR, reason)
        return self._record(call, call.outcome, call.arrived_s)

    def _record(self, call: Call, outcome: Outcome, ended_s: float) -> Activation:
        began_s = (call.begun_s or ended_s) - (call.init_s or 0)
        call.wait_ms = max(0, round((began_s - call.arrived_s) * 1000))
        duration_ms = max(0, round((ended_s - began_s) * 1000))
        ended_ms = now_ms() - round((self._now() - ended_s) * 1000)
        return self._recorder.record(call, outcome, start_ms=ended_ms - duration_ms, duration_ms=duration_ms)


def _kept(call: Call, outcome: Outcome) -> Outcome:
    """A value in shared memory that the record must have, as its caller waits no longer: what plain bodies may be."""
    parcel = outcome.parcel
    if parcel is None or not call.durable or parcel.size <= parcel.most_kept:
        return outcome
    told = too_long(parcel.size, parcel.most_kept).result
    return replace(outcome, status=Status.APPLICATION_ERROR, result=told, pickled=None, parcel=None)
