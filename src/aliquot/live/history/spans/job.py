"""The historian's job that sends the spans of calls to a collector."""

import os
from typing import Any

import msgspec

from aliquot.live.history.index.calls import COMPOSITION, IndexedCall
from aliquot.live.history.index.journal_index import CallRecord
from aliquot.live.history.spans.calls import Attribute, EndedCall, spans_of
from aliquot.live.history.spans.reports import SpanReport, TraceSettings
from aliquot.live.history.spans.sampling import TailSampler
from aliquot.live.history.spans.sending import SpanSender
from aliquot.live.history.spans.settings import sending_limits
from aliquot.live.invocations.trace_context import read_trace

_WORK_S = 1.0
_NOTES = {  # annotations that are attributes, and their names
    "objective": "aliquot.objective",
    "failure": "aliquot.failure",
    "batchSize": "aliquot.batch_size",
    "cached": "aliquot.cached",
    "execution": "aliquot.execution",
    "state": "aliquot.state",
    "attempt": "aliquot.attempt",
    "session": "aliquot.session",
    "calledBy": "aliquot.called_by",
}


class SpanJob:
    """Chooses calls that have ended, and gives their spans to the sender. It is a `HistorianJob`."""

    def __init__(self, settings: TraceSettings, sender: SpanSender) -> None:
        self._since_s = settings.since_s
        self._until_s = settings.since_s
        self._sampler = TailSampler(settings.fraction)
        self._sender = sender

    def call_ended(self, call: IndexedCall, record: CallRecord) -> None:
        """Take a call, unless it ended before the traces begin."""
        made = ended_call(call, record)
        if made is None or made.ended <= self._since_s:
            return
        self._until_s = max(self._until_s, made.ended)
        for chosen in self._sampler.take(made):
            self._sender.put(chosen.namespace, spans_of(chosen))

    def work(self, _now_s: float) -> float:
        """Do nothing here, because the sender has a thread of its own."""
        return _WORK_S

    def report(self) -> bytes:
        """Return what the server is to know."""
        return msgspec.json.encode(SpanReport(self._sender.counts, self._until_s))

    def close(self) -> None:
        self._sender.close()


def make_span_job(settings: bytes) -> SpanJob:
    """Return the job for the server's settings, with a connection to the collector that the variables name."""
    from aliquot.live.history.spans.otlp import OtlpExport  # noqa: PLC0415 - takes long, and needs an extra

    read = msgspec.json.decode(settings, type=TraceSettings)
    return SpanJob(read, SpanSender(OtlpExport(os.environ), sending_limits(os.environ)))


def ended_call(call: IndexedCall, record: CallRecord) -> EndedCall | None:
    """Return a call as the journal and its record tell it, or None if its end is not known."""
    if call.ended is None:
        return None
    notes = record.notes
    traceparent = notes.get("traceparent")
    composition = call.start == COMPOSITION
    return EndedCall(
        call.id,
        call.flow[0],
        str(notes.get("path", "")).partition("/")[2] or call.flow[1],
        call.arrived,
        call.dispatched,
        call.began,
        call.finished,
        call.ended,
        "" if composition else call.start,
        call.failed,
        call.error or (call.reason if call.failed else ""),
        call.devices,
        call.reason,
        read_trace(traceparent.encode()) if isinstance(traceparent, str) else None,
        _seconds(notes.get("gatewayTime")),
        _attributes(notes),
    )


def _attributes(notes: dict[str, Any]) -> dict[str, Attribute]:
    """Return the attributes that come from annotations. Objects are written as JSON."""
    found: dict[str, Attribute] = {}
    for key, name in _NOTES.items():
        value = notes.get(key)
        if isinstance(value, str | bool | int | float):
            found[name] = value
        elif value is not None:
            found[name] = msgspec.json.encode(value).decode()
    return found


def _seconds(milliseconds: object) -> float:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else 0.0
