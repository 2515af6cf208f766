"""Debian's Prometheus, which reads the metrics of a server."""

import json
import shutil
import socket
import subprocess
from contextlib import contextmanager

import httpx
import pytest
import yaml

from aliquot.testing.waiting import wait_until

PROGRAM = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROGRAM is None, reason="needs Debian's package prometheus")


class Prometheus:
    def __init__(self, url):
        self.url = url

    def ask(self, route, **query):
        answer = httpx.get(f"{self.url}/api/v1/{route}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def query(self, expression):
        """Return the values of a query by their labels."""
        found = self.ask("query", query=expression)["result"]
        return {json.dumps(each["metric"], sort_keys=True): float(each["value"][1]) for each in found}


@contextmanager
def running_prometheus(folder, config):
    """Run Prometheus with this configuration and exemplars, until it has read its targets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(lambda: is_ready(prometheus), what="Prometheus to have read a page")
        yield prometheus
    finally:
        process.terminate()
        process.wait()


def is_ready(prometheus):
    try:
        targets = prometheus.ask("targets")["activeTargets"]
    except (httpx.TransportError, AssertionError):
        return False
    for target in targets:
        assert not target["lastError"], target["lastError"]
    return targets and all(target["health"] == "up" for target in targets)
