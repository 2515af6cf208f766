"""The page about traces and metrics: its lines run, and each query of the dashboard gives data in a real Prometheus."""

import json
import os
import re
import subprocess
import threading

import pytest
import yaml
from live_platform import QuickPlatform
from places import DOCS
from prometheus_server import needs_prometheus, running_prometheus

from aliquot.testing.waiting import wait_until

pytest.importorskip("opentelemetry.proto", reason="needs pip install 'aliquot[otel]'")

from otlp_collector import OtlpCollector, attributes_of

PAGE = (DOCS / "how-to" / "observe.md").read_text(encoding="utf-8")
RATE = "30s"
CODE = "def main(args):\n    if args['n'] %% 5 == 0: raise ValueError\n    return {'n': %d}"


@pytest.fixture(scope="module")
def collector():
    with OtlpCollector() as collector:
        yield collector


@pytest.fixture(scope="module")
def platform(tmp_path_factory, collector):
    lines = commands("aliquot up")
    assert commands("export OTEL") == ["export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with QuickPlatform(tmp_path_factory.mktemp("observed"), *lines[0].split()[2:]) as platform:
            yield platform


def commands(begin):
    """Return the lines of the page that begin like this, with the lines that they are continued on."""
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)", PAGE, re.MULTILINE)
    return [line for line in found if line.startswith(begin)]


def test_a_call_with_the_header_of_the_page_is_in_that_trace(platform, collector):
    (line,) = commands("curl")
    environment = {**os.environ, "ALIQUOT_URL": platform.url, "ALIQUOT_KEY": platform.key}
    record = json.loads(subprocess.check_output(["bash", "-c", line], env=environment))
    spans = wait_until(
        lambda: [span for span in collector.spans
                 if attributes_of(span).get("faas.invocation_id") == record["activationId"]],
        what="the span of the call",
    )  # fmt: skip
    assert spans[0].trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"


@needs_prometheus
def test_each_query_of_the_dashboard_gives_data_in_a_real_prometheus(platform, tmp_path):
    (line,) = commands("aliquot grafana")
    said = platform.aliquot(*line.split()[1:])
    assert said.startswith("wrote dashboard.json")
    dashboard = json.loads((platform.folder / "dashboard.json").read_text())
    (config,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config = yaml.safe_load(config)
    scrape = config["scrape_configs"][0]
    scrape["static_configs"][0]["targets"] = [platform.url.removeprefix("http://")]
    scrape["authorization"]["credentials_file"] = str(platform.data / "operator.token")
    config["global"] = {"scrape_interval": "250ms"}
    with running_prometheus(tmp_path, config) as prometheus, busy(platform):
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
        assert len(queries) > 30
        for query in queries:
            expression = query.replace("$__rate_interval", RATE).replace("$namespace", ".*")
            values = wait_until(
                lambda expression=expression: prometheus.query(expression),
                lambda values: values and not any(value != value for value in values.values()),  # noqa: PLR0124 - NaN
                what=f"data for {query}",
            )
            assert values
        now = prometheus.ask("query", query="time()")["result"][1]
        times = {"start": float(now) - 600, "end": float(now)}
        exemplars = prometheus.ask("query_exemplars", query="aliquot_init_seconds_bucket", **times)
        assert any(each["labels"]["trace_id"] for series in exemplars for each in series["exemplars"])
        for name, expected in (("namespace", "guest"), ("action", "busy")):
            assert expected in prometheus.ask(f"label/{name}/values")


class busy:  # noqa: N801 - reads as a function
    """Calls functions again and again: some fail, and some begin anew."""

    def __init__(self, platform):
        self.platform = platform
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with self.platform.client() as client:
            number = 0
            while not self.ends.is_set():
                if number % 20 == 0:
                    client.deploy("busy", CODE % number)
                client.call("busy", {"n": number})
                number += 1
                self.ends.wait(0.05)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
