"""Traces as the server sees them: what it tells the historian, and what it learns from it."""

import time
from collections.abc import Mapping
from importlib.util import find_spec

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.live.history.spans.sending import SpanCounts
from aliquot.live.history.spans.settings import ENDPOINTS, wants_traces

_LIBRARY = "opentelemetry.exporter.otlp.proto.http"
_NO_LIBRARY = "traces: OTEL_… names a collector, and pip install 'aliquot[otel]' has not been done"
_OVERLAP_S = 5.0  # calls are taken roughly in the order of their ends; one that is taken twice has the same spans


class TraceSettings(Struct, frozen=True):
    """The settings of traces that the historian gets as JSON."""

    fraction: float  # of the usual calls
    since_s: float  # calls that ended before are not sent, in epoch seconds


class SpanReport(Struct, frozen=True):
    """A report of the historian about the spans that it has sent."""

    counts: SpanCounts
    until_s: float  # the calls that ended before were taken


class SpanReports:
    """The settings of the next historian, and the counts of all of them."""

    def __init__(self, fraction: float = 0.0) -> None:
        self._fraction = fraction
        self._since_s = time.time()
        self._ended = SpanCounts()  # of historians that have ended
        self._last = SpanCounts()

    @property
    def counts(self) -> SpanCounts:
        """The spans since the server started."""
        return SpanCounts(*(sum(pair) for pair in zip(self._ended, self._last, strict=True)))

    def settings(self) -> bytes:
        """Return the settings of a historian that begins. It goes on where the one before has ended."""
        self._ended, self._last = self.counts, SpanCounts()
        return msgspec.json.encode(TraceSettings(self._fraction, self._since_s))

    def take(self, body: bytes) -> None:
        """Take a report of the historian."""
        report = msgspec.json.decode(body, type=SpanReport)
        self._last = report.counts
        self._since_s = max(self._since_s, report.until_s - _OVERLAP_S)


def reports_for(fraction: float | None, environment: Mapping[str, str]) -> SpanReports | None:
    """Return the reports of a server that sends traces, or None. Raises `InputError` for a fraction without a place."""
    if fraction is not None and not wants_traces(environment):
        raise InputError(
            f"--trace-sample: no collector is named; set {ENDPOINTS[1]}, such as {ENDPOINTS[1]}=http://127.0.0.1:4318"
        )
    return SpanReports(fraction or 0.0) if wants_traces(environment) and not lacking_library(environment) else None


def lacking_library(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for people if a collector is named, and the extra that sends spans to it is not installed."""
    if not wants_traces(environment):
        return ()
    try:
        found = find_spec(_LIBRARY)
    except ModuleNotFoundError:  # a package above it
        found = None
    return (_NO_LIBRARY,) if found is None else ()
