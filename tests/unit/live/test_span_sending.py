"""Spans on their way to a real collector over HTTP, which may be slow, down or wrong."""

import threading

import msgspec
import pytest

from aliquot.core.errors import InputError
from aliquot.live.history.spans import reports
from aliquot.live.history.spans.calls import EndedCall, spans_of
from aliquot.live.history.spans.sending import SendingLimits, SpanCounts, SpanSender
from aliquot.live.history.spans.settings import sending_limits, service_attributes, wants_traces
from aliquot.live.invocations.trace_context import TraceContext
from aliquot.testing.waiting import wait_until

NOW = 1_790_000_000.0
TRACE = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled=True, state="vendor=1")
SOON = SendingLimits(max_queue_size=100, max_export_batch_size=10, schedule_delay_s=0.01)


def call(number=1, **more):
    facts = {"start": "cold", "failed": False, "devices": ("gpu0",), **more}
    times = (NOW, NOW + 0.1, NOW + 0.4, NOW + 0.9, NOW + 1)
    return EndedCall(f"01a1f0547674{number:020x}", "guest", "pack/f", *times, **facts)


@pytest.fixture
def collector(monkeypatch):
    pytest.importorskip("opentelemetry.proto", reason="needs pip install 'aliquot[otel]'")
    from otlp_collector import OtlpCollector

    with OtlpCollector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
        yield collector


@pytest.fixture
def sender(collector):  # noqa: ARG001 - it listens before the exporter is made
    from aliquot.live.history.spans.otlp import OtlpExport

    sender = SpanSender(OtlpExport({}), SOON)
    yield sender
    sender.close()


def test_spans_arrive_as_they_were_made(collector, sender):
    from otlp_collector import attributes_of

    made = spans_of(call(trace=TRACE, failed=True, error="it broke"))
    sender.put("guest", made)
    found = {span.name: span for span in collector.wait_for(len(made))}
    whole, run = found["pack/f"], found["run"]
    assert whole.trace_id.hex() == TRACE.trace_id
    assert (whole.span_id.hex(), whole.parent_span_id.hex()) == (f"{1:016x}", TRACE.parent)
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (made[0].begin_ns, made[0].end_ns)
    assert (whole.kind, whole.status.code, whole.status.message) == (2, 2, "it broke")  # a server's, an error
    assert whole.trace_state == "vendor=1"
    assert attributes_of(whole)["faas.name"] == "guest/pack/f"
    assert attributes_of(whole)["faas.coldstart"] is True
    assert attributes_of(run) == {"aliquot.device": ["gpu0"]}
    assert run.parent_span_id == whole.span_id
    (resource,) = collector.requests[0].resource_spans
    assert ("service.name", "aliquot") in [(pair.key, pair.value.string_value) for pair in resource.resource.attributes]
    assert collector.paths == ["/v1/traces"]
    wait_until(lambda: sender.counts, lambda counts: counts == SpanCounts(sent=len(made)), what="the count")


def test_a_collector_that_refuses_costs_the_spans_and_the_next_ones_arrive(collector, sender):
    collector.status = 400
    sender.put("guest", spans_of(call()))
    lost = wait_until(lambda: sender.counts, lambda counts: counts.failed, what="the refusal")
    collector.status = 200
    sender.put("guest", spans_of(call(2)))
    collector.wait_for(5)
    wait_until(lambda: sender.counts, lambda counts: counts.sent == lost.failed, what="the count")


def test_a_slow_collector_holds_up_nobody_and_what_is_too_much_is_dropped_and_counted(collector, sender):
    collector.gate.clear()
    for number in range(1000):
        sender.put("guest", spans_of(call(number + 1)))  # returns at once, or this test would take hours
    assert sender.counts.dropped >= 1000 * 5 - 100 - 10
    sender.put("neighbour", spans_of(call(2000)))
    dropped = sender.counts.dropped
    collector.gate.set()
    total = wait_until(lambda: sender.counts, lambda counts: sum(counts) == 5005, what="all spans to be counted")
    assert total.sent == len(collector.spans)
    assert total.dropped == dropped, "the neighbour's had a place"


def test_nobody_waits_for_a_collector_that_is_gone(monkeypatch):
    blocked = threading.Event()
    monkeypatch.setattr("aliquot.live.history.spans.sending.CLOSE_TIMEOUT_S", 0.05)
    sender = SpanSender(lambda _: blocked.wait(60), SOON)
    sender.put("guest", spans_of(call()))
    wait_until(lambda: not sender._queue, what="the thread to take the batch")
    for number in range(10):
        sender.put("guest", spans_of(call(number)))
    sender.close()
    assert sender.counts.dropped == 50
    blocked.set()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, False), ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, True), ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
     ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, False)],
)  # fmt: skip
def test_the_variables_of_opentelemetry_turn_traces_on_and_off(environment, wanted):
    assert wants_traces(environment) is wanted


def test_the_variables_of_opentelemetry_set_the_queue_and_the_service():
    set_all = {"OTEL_BSP_MAX_QUEUE_SIZE": "70", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "90", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    assert sending_limits(set_all) == SendingLimits(70, 70, 0.05)
    assert sending_limits({"OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_BSP_SCHEDULE_DELAY": "x"}) == SendingLimits()
    assert service_attributes({}) == {"service.name": "aliquot"}
    assert service_attributes({"OTEL_SERVICE_NAME": "lab"}) == {}
    assert service_attributes({"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=lab"}) == {}


def test_a_server_without_the_library_says_so_and_sends_nothing(monkeypatch):
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    monkeypatch.setattr(reports, "find_spec", lambda _: None)
    (line,) = reports.lacking_library(named)
    assert "pip install 'aliquot[otel]'" in line
    assert reports.reports_for(0.5, named) is None
    assert reports.lacking_library({}) == ()


def test_a_fraction_without_a_collector_is_refused():
    with pytest.raises(InputError, match="--trace-sample: no collector is named; set OTEL_EXPORTER_OTLP_ENDPOINT"):
        reports.reports_for(0.5, {})
    assert reports.reports_for(None, {}) is None


def test_counts_and_the_place_to_go_on_survive_a_historian_that_ended(monkeypatch):
    monkeypatch.setattr(reports.time, "time", lambda: NOW)
    made = reports.SpanReports(0.25)
    first = msgspec.json.decode(made.settings(), type=reports.TraceSettings)
    assert first == reports.TraceSettings(0.25, NOW)
    made.take(msgspec.json.encode(reports.SpanReport(SpanCounts(10, 1, 2), NOW + 60)))
    second = msgspec.json.decode(made.settings(), type=reports.TraceSettings)
    assert NOW + 50 < second.since_s < NOW + 60
    made.take(msgspec.json.encode(reports.SpanReport(SpanCounts(5, 0, 1), NOW + 61)))
    assert made.counts == SpanCounts(15, 1, 3)
