"""Settings of traces: the fraction of usual calls to send, and OpenTelemetry's variables."""

from collections.abc import Mapping

from aliquot.live.history.spans.sending import SendingLimits

SERVICE_NAME = "service.name"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_OTLP = "otlp"


def wants_traces(environment: Mapping[str, str]) -> bool:
    """Return whether the variables name a collector, and do not turn traces off."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = [name.strip() for name in environment.get(_EXPORTERS, "").split(",") if name.strip()]
    if exporters:
        return _OTLP in exporters
    return any(environment.get(name, "").strip() for name in ENDPOINTS)


def sending_limits(environment: Mapping[str, str]) -> SendingLimits:
    """Return the bounds of the queue. A variable that is not a number above 0 does not count, as OpenTelemetry asks."""
    default = SendingLimits()
    queue = _number(environment, "OTEL_BSP_MAX_QUEUE_SIZE", default.max_queue_size)
    batch = _number(environment, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", default.max_export_batch_size)
    delay_ms = _number(environment, "OTEL_BSP_SCHEDULE_DELAY", round(default.schedule_delay_s * 1000))
    return SendingLimits(queue, min(batch, queue), delay_ms / 1000)


def service_attributes(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the service that the variables do not set."""
    attributes = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named = environment.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in attributes
    return {} if named else {SERVICE_NAME: "aliquot"}


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default
