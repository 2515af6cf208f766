"""Warm calls of other kinds than the plain no-op: with a share of a device, over the web, asynchronous, of ten tenants.

Records that are read back are measured beside them. Each kind has the same server and the same number of callers.
"""

import json
import time
from pathlib import Path

import httpx
from msgspec import Struct

from aliquot.testing.client import NamespaceClient, certificates, check
from aliquot_bench.environments import scratch
from aliquot_bench.latency.platform import NO_OP, REQUEST_TIMEOUT_S, LatencyPlatform, up
from aliquot_bench.latency.process import CpuUsage, ServerError, answers
from aliquot_bench.latency.targets import CALLERS, WARM_S
from aliquot_bench.latency.wrk import LoadEndpoint, LoadReport, run_wrk

DEVICES = ("--devices", "host:1")
SHARE = 0.25  # of the device, so that four calls run at once
TENANTS = 10
READ = 200  # records that are read back in turn
MAX_ASYNCHRONOUS_S = 2.0  # more calls than the server runs meanwhile may wait, but not more than it admits
DRAIN_TIMEOUT_S = 120
_CALL = "/api/v1/namespaces/_/actions/{}?blocking=true&result=true"


class KindFigures(Struct, frozen=True):
    """The figures of one kind of call."""

    kind: str
    p50_ms: float
    p99_ms: float
    per_second: float
    cpu_us: float | None  # of all processes of the server, for each request


class _Kinds:
    """Measures all kinds on one server."""

    def __init__(self, platform: LatencyPlatform, folder: Path, seconds: float) -> None:
        self._platform = platform
        self._folder = folder
        self._seconds = seconds
        self.found: list[KindFigures] = []

    def measure(self) -> None:
        platform = self._platform
        platform.deploy("plain", NO_OP)
        platform.deploy("share", NO_OP, {"gpu-share": SHARE})
        platform.deploy("web", NO_OP, {"web-export": True})
        self._add("a plain call", platform.endpoint(["plain"]))
        self._add("with a share of a device", platform.endpoint(["share"]))
        path = f"/api/v1/web/{platform.namespace}/default/web.json"
        self._add("through a web action", LoadEndpoint(platform.url, (path,)))
        self._add(f"of {TENANTS} tenants in turn", self._tenants())
        self._add_asynchronous()
        self._add("a record read back", self._records())

    def _add(self, kind: str, endpoint: LoadEndpoint) -> None:
        if not answers(endpoint):
            raise ServerError(f"{kind}: the first request is refused")
        run_wrk(endpoint, self._folder, connections=CALLERS, seconds=WARM_S)
        usage = CpuUsage(self._platform.server)
        report = run_wrk(endpoint, self._folder, connections=CALLERS, seconds=self._seconds)
        self._note(kind, report, usage.since_start()[0], report.per_second)

    def _note(self, kind: str, report: LoadReport, cpu_s: float, per_second: float) -> None:
        if report.errors:
            raise ServerError(f"{kind}: {report.errors} error answers")
        cpu_us = 1e6 * cpu_s / report.requests if report.requests else None
        self.found.append(KindFigures(kind, report.p50_ms, report.p99_ms, per_second, cpu_us))

    def _add_asynchronous(self) -> None:
        """Measure calls that are acknowledged when they are durable. The rate is that at which they have run."""
        client, before = self._platform.client, self._count_records()
        endpoint = LoadEndpoint(self._platform.url, (_CALL.format("plain").partition("?")[0],), headers=_basic(client))
        usage, began = CpuUsage(self._platform.server), time.perf_counter()
        seconds = min(self._seconds, MAX_ASYNCHRONOUS_S)
        report = run_wrk(endpoint, self._folder, connections=CALLERS, seconds=seconds)
        while self._count_records() - before < report.requests:
            if time.perf_counter() - began > DRAIN_TIMEOUT_S:
                raise ServerError(f"asynchronous calls have not ended after {DRAIN_TIMEOUT_S} s")
            time.sleep(0.05)
        took_s = time.perf_counter() - began
        self._note("asynchronous, until it has run", report, usage.since_start()[0], report.requests / took_s)

    def _count_records(self) -> int:
        answer = check(self._platform.client.get("activations", params={"count": "true", "name": "plain"}))
        return int(answer.json()["activations"])

    def _records(self) -> LoadEndpoint:
        client = self._platform.client
        listed = check(client.get("activations", params={"limit": READ})).json()
        paths = tuple(f"/api/v1/namespaces/_/activations/{record['activationId']}" for record in listed)
        return LoadEndpoint(self._platform.url, paths, body="", headers=_basic(client), method="GET")

    def _tenants(self) -> LoadEndpoint:
        keys = [self._create_namespace(f"tenant{number}") for number in range(TENANTS)]
        headers = []
        for key in keys:
            with NamespaceClient(self._platform.url, key, timeout=REQUEST_TIMEOUT_S) as client:
                client.deploy("plain", NO_OP)
                headers.append(_basic(client))
        return LoadEndpoint(self._platform.url, (_CALL.format("plain"),) * TENANTS, headers_by_path=tuple(headers))

    def _create_namespace(self, name: str) -> str:
        operator = json.loads((self._folder / "data" / "local.json").read_text(encoding="utf-8"))["operator"]
        headers, url = {"authorization": f"Bearer {operator}"}, f"{self._platform.url}/operator/v1/namespaces"
        made = httpx.post(url, json={"name": name}, headers=headers, timeout=REQUEST_TIMEOUT_S, verify=certificates())
        return str(check(made).json()["key"])


def _basic(client: NamespaceClient) -> dict[str, str]:
    return {"Authorization": client.authorization}


def measure_kinds(seconds: float) -> list[KindFigures]:
    """Measure all kinds on a server of their own. Raise `MeasurementError` if one of them fails."""
    with scratch() as folder, up(folder, options=DEVICES) as platform:
        kinds = _Kinds(platform, folder, seconds)
        kinds.measure()
        return kinds.found
