"""Finish a call: build its activation record from the run's outcome and from the files that it read."""

from collections.abc import Callable

from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.core.places import node_of
from aliquot.live.datasets.readers import DatasetReaders
from aliquot.live.invocations.activations import ActivationRecorder, failure, note
from aliquot.live.invocations.bill_notes import BillNotes
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.call_registry import CallRegistry
from aliquot.live.invocations.dataset_annotations import notes_of
from aliquot.live.invocations.kernel_notes import kernel_notes
from aliquot.live.node.base import Outcome, Status
from aliquot.live.node.logs import error_line
from aliquot.live.store.records import KERNEL, Action, Activation
from aliquot.runtime.answers import too_long
from aliquot.storage.messages import RunSettled


class CallFinisher:
    """Turns outcomes into records, and hands the records to the registry of calls."""

    def __init__(
        self, policies: str, registry: CallRegistry, readers: DatasetReaders, now: Callable[[], float]
    ) -> None:
        self._recorder = ActivationRecorder(policies)
        self._bill = BillNotes()
        self._registry = registry
        self._readers = readers
        self._now = now  # the platform's clock

    def forget(self, action: Action) -> None:
        """Forget what is known of a revision of an action."""
        self._recorder.forget(action)
        self._bill.forget(action)

    def finish(self, call: Call, outcome: Outcome) -> None:
        """Settle the outcome of a call. A call that has read datasets waits a moment for the storage agent's report."""
        call.outcome = outcome = _without_oversized_buffer(call, outcome)
        ended_s = self._now()
        if call.run.view_sandbox is None:
            self._registry.end(call, self._record(call, outcome, ended_s, now_s=ended_s))
            return
        call.ended = True

        def settled(report: RunSettled | str) -> None:
            call.notes += notes_of(report)
            error = report.error if isinstance(report, RunSettled) else report
            line = error_line(error) if error else ""
            if line:  # the function itself has seen an error number at most
                call.printed(line)
            whole = replace(outcome, logs=(*outcome.logs, line)) if line else outcome
            self._registry.end(call, self._record(call, whole, ended_s, now_s=self._now()))

        self._readers.end_run(call.run.view_sandbox, call.id, settled)

    def record_unstarted(self, call: Call, reason: str) -> Activation:
        """Return the record of a call that an earlier server accepted and that cannot run."""
        now_s = call.run.arrived_s = self._now()
        call.outcome = failure(Status.INTERNAL_ERROR, reason)
        return self._record(call, call.outcome, now_s, now_s=now_s)

    def _record(self, call: Call, outcome: Outcome, ended_s: float, *, now_s: float) -> Activation:
        run = call.run
        if outcome.failure:
            call.notes += note("failure", outcome.failure)
        if run.place and (node := node_of(run.place)):
            call.notes += note("node", node)
        if call.action.exec.kind == KERNEL:
            call.notes += kernel_notes(outcome)
        call.notes += self._bill.notes(call, outcome.run_s)
        began_s = (run.begun_s or ended_s) - (run.init_s or 0)
        run.wait_ms = max(0, round((began_s - run.arrived_s) * 1000))
        duration_ms = max(0, round((ended_s - began_s) * 1000))
        ended_ms = now_ms() - round((now_s - ended_s) * 1000)
        return self._recorder.record(call, outcome, start_ms=ended_ms - duration_ms, duration_ms=duration_ms)


def _without_oversized_buffer(call: Call, outcome: Outcome) -> Outcome:
    """Replace a result that must be stored and whose shared buffer is larger than a plain body may be."""
    buffer = outcome.shared_buffer
    if buffer is None or not call.durable or buffer.size <= buffer.max_kept:
        return outcome
    result = too_long(buffer.size, buffer.max_kept).result
    return replace(outcome, status=Status.APPLICATION_ERROR, result=result, pickled=None, shared_buffer=None)
