"""The spans of a call, made from its phases after it has ended. Nothing is noted for them while it runs.

    call                    the whole of it, with the id that its parts know as their parent
      admit                 the request is read and checked
      queue                 from its arrival to its dispatch
      start, or load        its sandbox starts, or is loaded to the device
      run
      record                until its end is told

Identifiers follow from the activation's, so a call that is read twice has the same spans.
"""

from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from aliquot.live.history.records import Phase
from aliquot.live.invocations.trace_context import TraceContext, begin_trace, span_of

Attribute = str | bool | int | float | tuple[str, ...]
NS = 1_000_000_000
_MIN_PHASE_S = 1e-6
_SPAN_ID_BYTES = 8
_COLD, _WARM = "cold", "warm"
_INTERNAL, _SERVER = "internal", "server"
_QUEUE, _ADMIT, _RECORD = "queue", "admit", "record"


class SpanStatus(Enum):
    """The status of a span, as OpenTelemetry has it."""

    UNSET = 0
    OK = 1
    ERROR = 2


class EndedCall(NamedTuple):
    """A call that has ended. Times are epoch seconds, and None for what it has not reached."""

    id: str
    namespace: str
    action: str
    arrived: float
    dispatched: float | None
    began: float | None
    finished: float | None
    ended: float
    start: str  # cold, load or warm; empty for a composition, or if it was never dispatched
    failed: bool
    error: str = ""
    devices: tuple[str, ...] = ()
    reason: str = ""  # of its place
    trace: TraceContext | None = None  # the one that it is part of
    gateway_s: float = 0.0  # to read and check the request
    notes: Mapping[str, Attribute] = {}  # further attributes

    @property
    def trace_id(self) -> str:
        return self.id if self.trace is None else self.trace.trace_id

    @property
    def sampled(self) -> bool:
        """Return whether its caller records the trace."""
        return self.trace is not None and self.trace.sampled

    @property
    def duration_s(self) -> float:
        return max(0.0, self.ended - self.arrived)

    @property
    def cold(self) -> bool:
        return self.start == _COLD


class CallSpan(NamedTuple):
    """A span as it is sent. Times are nanoseconds since the epoch."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str  # empty at the beginning of a trace
    begin_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    status: SpanStatus = SpanStatus.UNSET
    message: str = ""
    state: str = ""  # `tracestate`, as the caller has given it


def spans_of(call: EndedCall) -> list[CallSpan]:
    """Return the spans of a call, that of the whole call first."""
    trace = call.trace or begin_trace(call.id)
    own = span_of(call.id)
    begin_s = call.arrived - call.gateway_s
    whole = CallSpan(
        call.action,
        _SERVER,
        trace.trace_id,
        own,
        "" if call.trace is None else trace.parent,
        *_times(begin_s, call.ended),
        _attributes(call),
        SpanStatus.ERROR if call.failed else SpanStatus.OK,
        call.error if call.failed else "",
        trace.state,
    )
    parts = [
        CallSpan(name, _INTERNAL, trace.trace_id, _part_id(call.id, name), own, *_times(begin, end), attributes,
                 state=trace.state)
        for name, begin, end, attributes in _phases(call, begin_s)
        if end - begin >= _MIN_PHASE_S
    ]  # fmt: skip
    return [whole, *parts]


def _phases(call: EndedCall, begin_s: float) -> list[tuple[str, float, float, Mapping[str, Attribute]]]:
    found: list[tuple[str, float, float, Mapping[str, Attribute]]] = [(_ADMIT, begin_s, call.arrived, {})]
    if not call.start:  # a composition, whose parts have spans of their own, or a call that was never dispatched
        if call.dispatched is None:
            found.append((_QUEUE, call.arrived, call.ended, {}))
        return found
    dispatched = call.ended if call.dispatched is None else call.dispatched
    found.append((_QUEUE, call.arrived, dispatched, {"aliquot.reason": call.reason}))
    began = call.ended if call.began is None else call.began
    if call.start != _WARM:
        found.append((Phase.START.value if call.cold else Phase.LOAD.value, dispatched, began, {}))
    if call.began is not None:
        finished = call.ended if call.finished is None else call.finished
        found.append((Phase.RUN.value, began, finished, {"aliquot.device": call.devices}))
        found.append((_RECORD, finished, call.ended, {}))
    return found


def _attributes(call: EndedCall) -> dict[str, Attribute]:
    """Return the attributes of a call by OpenTelemetry's names, and by our own where it has none."""
    found: dict[str, Attribute] = {
        "faas.name": f"{call.namespace}/{call.action}",
        "faas.invocation_id": call.id,
        "aliquot.namespace": call.namespace,
        "aliquot.action": call.action,
    }
    if call.start:
        found |= {"faas.coldstart": call.cold, "aliquot.start": call.start, "aliquot.device": call.devices}
    return {**found, **call.notes}


def _times(begin_s: float, end_s: float) -> tuple[int, int]:
    begin_ns = round(begin_s * NS)
    return begin_ns, max(begin_ns, round(end_s * NS))


def _part_id(activation: str, phase: str) -> str:
    return blake2b(f"{activation}/{phase}".encode(), digest_size=_SPAN_ID_BYTES).hexdigest()
