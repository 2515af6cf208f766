"""The header `traceparent` of requests: calls belong to the trace of the code that makes them."""

import os
import sys
from collections.abc import Mapping

from aliquot.sdk.wire import HttpRequest

_ACTIVATION = "__OW_ACTIVATION_ID"
_SPAN_DIGITS = 16
_FIELDS = ("traceparent", "tracestate")


def with_trace(request: HttpRequest) -> HttpRequest:
    """Return a request that calls something with the headers of the trace that this code is part of."""
    if request.method != "POST" or "traceparent" in request.headers:
        return request
    headers = trace_headers()
    return request._replace(headers={**request.headers, **headers}) if headers else request


def trace_headers() -> dict[str, str]:
    """Return the headers: of OpenTelemetry's current span, of the environment, or of the activation in a sandbox."""
    found = _current_span()
    if found:
        return found
    traceparent = os.environ.get("TRACEPARENT")
    if traceparent:
        state = os.environ.get("TRACESTATE")
        return _printable({"traceparent": traceparent, **({"tracestate": state} if state else {})})
    activation = os.environ.get(_ACTIVATION)
    return {"traceparent": f"00-{activation}-{activation[-_SPAN_DIGITS:]}-00"} if activation else {}


def _current_span() -> dict[str, str]:
    """Return the headers of OpenTelemetry's current span, if this program uses OpenTelemetry and has a span."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return _printable({name: carrier[name] for name in _FIELDS if name in carrier})


def _printable(headers: Mapping[str, str]) -> dict[str, str]:
    """Leave out what cannot be sent in a header."""
    return {name: text for name, text in headers.items() if text.isascii() and text.isprintable()}
