"""The page of metrics of a real server, in both formats."""

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from aliquot.testing.waiting import wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}


def page(server, **headers):
    answer = httpx.get(f"{server.url}/metrics", headers={"authorization": f"Bearer {server.operator}", **headers})
    return answer.raise_for_status()


def samples(text, read=read_text):
    return [sample for family in read(text) for sample in family.samples]


def value(server, name, **labels):
    return sum(
        sample.value
        for sample in samples(page(server).text)
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_the_platform_counts_what_it_does(shared_server):
    with shared_server.client() as client:
        client.deploy("counted", "def main(args): return args")
        before = {start: value(shared_server, "aliquot_dispatches_total", start=start) for start in ("cold", "warm")}
        calls = value(shared_server, "aliquot_http_requests_total", request="call", code="200")
        for number in range(5):
            client.call("counted", {"n": number})
        assert client.post("actions/nobody", params={"blocking": "true"}, json={}).status_code == 404
    after = {start: value(shared_server, "aliquot_dispatches_total", start=start) for start in ("cold", "warm")}
    assert after["cold"] + after["warm"] == before["cold"] + before["warm"] + 5
    assert value(shared_server, "aliquot_http_requests_total", request="call", code="200") == calls + 5
    assert value(shared_server, "aliquot_http_requests_total", request="call", code="404") >= 1
    assert value(shared_server, "aliquot_http_requests_total", request="other", code="200") >= 1
    assert value(shared_server, "aliquot_queued_calls") == value(shared_server, "aliquot_oldest_wait_seconds") == 0
    assert value(shared_server, "aliquot_fairness_ratio", on="cpu") == 1
    wait_until(lambda: value(shared_server, "aliquot_commit_seconds_count"), what="a commit")
    wait_until(lambda: value(shared_server, "aliquot_loop_lag_seconds_count"), what="a tick")
    with shared_server.client() as client:
        stops = value(shared_server, "aliquot_sandbox_stops_total")
        client.delete("actions/counted").raise_for_status()
    wait_until(lambda: value(shared_server, "aliquot_sandbox_stops_total"), lambda now: now > stops, what="a stop")
    with shared_server.client() as client:
        client.deploy("again", "def main(args): return args")

        def steps():
            client.call("again", {})
            return value(shared_server, "aliquot_step_seconds_count")

        wait_until(steps, what="a step that is measured")


def test_openmetrics_has_the_traces_of_calls_as_exemplars(shared_server):
    with shared_server.client() as client:
        client.deploy("traced", "def main(args): return args")
        cold = client.call("traced", {})["activationId"]
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        for _ in range(2):
            client.post("actions/traced", params={"blocking": "true"}, json={}, headers=headers).raise_for_status()
    answer = page(shared_server, **OPENMETRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    found = {
        sample.name: sample.exemplar.labels["trace_id"]
        for sample in samples(answer.text, read_openmetrics)
        if sample.exemplar is not None and sample.labels.get("action") == "traced"
    }
    assert found["aliquot_init_seconds_bucket"] == cold
    assert found["aliquot_run_seconds_bucket"] in {TRACE, cold}
    assert "# {" not in page(shared_server).text, "the older format has no exemplars"
