"""The trace that a call belongs to, as W3C's Trace Context describes it.

A caller names its trace in the headers `traceparent` and `tracestate`. A call passes them on to its code, with a span
of its own as the parent. The id of that span is the end of the activation's id, which is random. A call without the
headers begins a trace whose id is its activation's id. Nothing is made for such a call until it makes calls itself.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aliquot.live.invocations.call import Call

TRACEPARENT, TRACESTATE = b"traceparent", b"tracestate"
TRACEPARENT_BYTES = 55  # of version 00
MAX_STATE_BYTES = 512  # a longer `tracestate` is left out, as the recommendation allows
_SPAN_DIGITS = 16
_SAMPLED = 1
# A later version may have more fields behind another dash. Version ff is not allowed.
_HEADER = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_STATE = re.compile(rb"[\x20-\x7e]+")


class TraceContext(NamedTuple):
    """A trace, and the span in it that is the parent of what follows."""

    trace_id: str
    parent: str  # id of a span
    sampled: bool  # the caller records its trace
    state: str = ""  # what tracing systems pass to each other, as it came

    @property
    def header(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.parent}-0{int(self.sampled)}"


def read_trace(traceparent: bytes, tracestate: bytes | None = None) -> TraceContext | None:
    """Return the trace that the headers name, or None if they cannot be read. They are ignored then."""
    found = _HEADER.fullmatch(traceparent)
    if found is None or (found[4] is not None and traceparent.startswith(b"00")):
        return None
    state = ""
    if tracestate and len(tracestate) <= MAX_STATE_BYTES and _STATE.fullmatch(tracestate):
        state = tracestate.decode("ascii")
    return TraceContext(found[1].decode(), found[2].decode(), bool(int(found[3], 16) & _SAMPLED), state)


def trace_of(headers: Mapping[bytes, bytes]) -> TraceContext | None:
    """Return the trace that a request belongs to, if it has a header that can be read."""
    traceparent = headers.get(TRACEPARENT)
    return None if traceparent is None else read_trace(traceparent, headers.get(TRACESTATE))


def span_of(activation: str) -> str:
    """Return the id of the span of an activation."""
    return activation[-_SPAN_DIGITS:]


def begin_trace(activation: str) -> TraceContext:
    """Return the trace that begins with an activation, as the parts of that activation get it."""
    return TraceContext(activation, span_of(activation), sampled=False)


def trace_within(call: "Call", activation: str = "") -> TraceContext:
    """Return the trace for what a call does: its own, or a new one, with its span as the parent.

    `activation` names a composition inside of the call whose part this is.
    """
    trace, parent = call.trace, activation or call.id
    if trace is None:
        return TraceContext(call.id, span_of(parent), sampled=False)
    return TraceContext(trace.trace_id, span_of(parent), trace.sampled, trace.state)


def pack_trace(trace: TraceContext | None) -> str:
    """Return a trace as one line of text, empty if there is none."""
    return "" if trace is None else f"{trace.header} {trace.state}"


def unpack_trace(text: str) -> TraceContext | None:
    """Return the trace that `pack_trace` has written."""
    traceparent, _, state = text.encode().partition(b" ")
    return read_trace(traceparent, state)
