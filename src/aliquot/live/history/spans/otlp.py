"""Spans in OpenTelemetry's protocol over HTTP. The variables `OTEL_…` name the collector, and hold as in any program.

This needs the extra `otel`. Its libraries are imported here only, in the historian's process.
"""

import logging
from collections.abc import Mapping, Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from aliquot.live.history.spans.calls import CallSpan
from aliquot.live.history.spans.settings import service_attributes
from aliquot.version import __version__

_KINDS = {"server": SpanKind.SERVER, "internal": SpanKind.INTERNAL}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)

log = structlog.get_logger("aliquot.traces")


class OtlpExport:
    """Sends spans to the collector. It logs the first of several failures, and the first success after them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # The exporter logs each attempt that fails.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter()
        self._resource = Resource.create(service_attributes(environment))
        self._scope = InstrumentationScope("aliquot", __version__)
        self._fails = False

    def __call__(self, spans: Sequence[CallSpan]) -> bool:
        """Send the spans. Return whether the collector has taken them, after some attempts."""
        try:
            result = self._exporter.export([self._readable(span) for span in spans])
            taken = result is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - whatever a collector answers, the next batch is tried
            taken = False
        if not taken and not self._fails:
            log.warning("the collector does not take spans, which are lost and counted", spans=len(spans))
        elif taken and self._fails:
            log.info("the collector takes spans again")
        self._fails = not taken
        return taken

    def _readable(self, span: CallSpan) -> ReadableSpan:
        trace_id = int(span.trace_id, 16)
        context = SpanContext(trace_id, int(span.span_id, 16), False, _SAMPLED, _state_of(span))
        parent = SpanContext(trace_id, int(span.parent, 16), True, _SAMPLED) if span.parent else None
        return ReadableSpan(
            span.name,
            context,
            parent,
            self._resource,
            span.attributes,
            kind=_KINDS[span.kind],
            status=Status(StatusCode(span.status.value), span.message or None),
            start_time=span.begin_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _state_of(span: CallSpan) -> TraceState | None:
    return TraceState.from_header([span.state]) if span.state else None
