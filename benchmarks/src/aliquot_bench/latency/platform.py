"""Aliquot as a target of the benchmark: `aliquot up` on a fresh data directory, called over HTTP."""

import contextlib
import http.client
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import msgspec
import psutil  # type: ignore[import-untyped]
from msgspec import Struct

from aliquot.core.units import MB
from aliquot.testing.client import NamespaceClient, from_pairs, result_of, to_pairs
from aliquot_bench.environments import cache_folder, prepare, run, scratch
from aliquot_bench.environments import python as python_of
from aliquot_bench.latency.peers import TORCH
from aliquot_bench.latency.process import ServerError, ServerProcess, answers, free_port
from aliquot_bench.latency.targets import CALLERS, WARM_S, LoadSample, load
from aliquot_bench.latency.wrk import LoadEndpoint, run_wrk

NO_OP = "def main(args):\n    return args\n"
WITH_TORCH = "import torch\n\n\ndef main(args):\n    return {'ones': int(torch.ones(3).sum())}\n"
FUNCTIONS = 100  # compared with one, for the throughput
COLD = 10  # functions in the median of first calls
SETTLE_S = 1.0  # before the memory of the idle server is read
REQUEST_TIMEOUT_S = 120


class ReadyFile(Struct, frozen=True):
    """The file that the server writes when it answers requests."""

    url: str
    namespace: str
    key: str
    pid: int


class ColdStart(Struct, frozen=True):
    """The time of a first call as the caller sees it, and the part that its record counts as initialization."""

    whole_ms: float
    init_ms: float


class LatencyPlatform:
    """A running server under measurement."""

    def __init__(self, server: ServerProcess, ready: ReadyFile, up_s: float) -> None:
        self.server, self.up_s, self.pid = server, up_s, ready.pid
        self.url, self.namespace = ready.url, ready.namespace
        self.client = NamespaceClient(ready.url, ready.key, timeout=REQUEST_TIMEOUT_S)
        self._headers = {"Authorization": self.client.authorization}

    def memory_mb(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / MB

    def deploy(self, name: str, code: str, annotations: Mapping[str, Any] | None = None) -> None:
        self.client.deploy(name, code, annotations=to_pairs(dict(annotations or {})))

    def endpoint(self, names: Sequence[str]) -> LoadEndpoint:
        """Return the endpoint at which the load generator calls these functions."""
        paths = tuple(f"/api/v1/namespaces/_/actions/{quote(name)}?blocking=true&result=true" for name in names)
        return LoadEndpoint(self.url, paths, headers=self._headers)

    def first_call(self, name: str) -> ColdStart:
        """Call a function that has no sandbox yet, and return how long its start took."""
        began = time.perf_counter()
        record = self.client.call(name, {})
        took_s = time.perf_counter() - began
        result_of(name, record)
        return ColdStart(1000 * took_s, float(from_pairs(record["annotations"]).get("initTime", 0)))

    def cold(self, prefix: str, code: str, imports: Sequence[str] = ()) -> ColdStart:
        """Return the median first call of several new functions.

        The first of them is not counted, because it may start the zygote.
        """
        names = [f"{prefix}{number}" for number in range(COLD + 1)]
        for name in names:
            self.deploy(name, code, {"imports": list(imports)} if imports else None)
        calls = [self.first_call(name) for name in names][1:]
        return ColdStart(median(call.whole_ms for call in calls), median(call.init_ms for call in calls))


@contextmanager
def up(folder: Path, python: str = sys.executable, options: Sequence[str] = ()) -> Iterator[LatencyPlatform]:
    """Start a server as a user does, and measure the time until it answers. `options` are those of `aliquot up`."""
    port, ready_file = free_port(), folder / "ready.json"
    command = [python, "-c", "from aliquot.cli import main; main()", "up", "--data", str(folder / "data")]
    command += ["--port", str(port), "--ready-file", str(ready_file), *options]
    with ServerProcess(command, folder) as server:
        server.wait_until(lambda: _healthy(port), every_s=0.002)
        up_s = time.perf_counter() - server.started
        server.wait_until(ready_file.exists)
        platform = LatencyPlatform(server, msgspec.json.decode(ready_file.read_bytes(), type=ReadyFile), up_s)
        with platform.client:
            yield platform


class AliquotTarget:
    """A warm blocking no-op, and the other figures of the server."""

    settings = "as installed: key, scheduler, journal, records, a sandbox per concurrent call"

    def __init__(self, name: str, turns: int, python: str = sys.executable) -> None:
        """`python` is the interpreter of the environment whose version is measured."""
        self.name = name
        self._python = python
        self._turns = turns  # comparisons of one function with a hundred per round
        self.up_s: list[float] = []
        self.idle_mb: list[float] = []
        self.loaded_mb: list[float] = []
        self.cold: list[ColdStart] = []
        self.one_per_second: list[float] = []
        self.many_per_second: list[float] = []

    def prepare(self, on_step: Callable[[str], None]) -> str:
        return ""

    def measure(self, seconds: float) -> LoadSample:
        with scratch() as folder, up(folder, self._python) as platform:
            time.sleep(SETTLE_S)
            self.up_s.append(platform.up_s)
            self.idle_mb.append(platform.memory_mb())
            self.cold.append(platform.cold("cold", NO_OP))
            platform.deploy("noop", NO_OP)
            endpoint = platform.endpoint(["noop"])
            if not answers(endpoint):
                raise ServerError("the no-op does not answer")
            sample = load(platform.server, endpoint, folder, seconds)
            self._one_against_many(platform, folder, max(1, seconds / 2))
            self.loaded_mb.append(platform.memory_mb())
            return sample

    def _one_against_many(self, platform: LatencyPlatform, folder: Path, seconds: float) -> None:
        """Measure the throughput of one function and of many, in turn and with the same script."""
        names = [f"warm{number}" for number in range(FUNCTIONS)]
        for name in names:
            platform.deploy(name, NO_OP)
        one, many = platform.endpoint(names[:1]), platform.endpoint(names)
        for endpoint in (one, many):
            if not answers(endpoint):
                raise ServerError(f"one of {FUNCTIONS} functions does not answer")
            run_wrk(endpoint, folder, connections=CALLERS, seconds=2 * WARM_S, in_turn=True)
        for _ in range(self._turns):
            for endpoint, rates in ((one, self.one_per_second), (many, self.many_per_second)):
                done = run_wrk(endpoint, folder, connections=CALLERS, seconds=seconds, in_turn=True)
                if done.errors:
                    raise ServerError(f"{done.errors} error answers among {len(endpoint.paths)} functions")
                rates.append(done.per_second)


class TorchStart(Struct, frozen=True):
    """The first call of a function that imports torch, and the import in a plain interpreter."""

    cold: ColdStart
    plain_ms: float


def measure_torch(on_step: Callable[[str], None]) -> TorchStart:
    """Measure first calls on a server in an environment with torch.

    A path file adds all packages of this environment to it.
    """
    environment = prepare(cache_folder() / "torch", (TORCH,), on_step)
    site = Path(run([python_of(environment), "-c", "import site; print(site.getsitepackages()[0])"]).strip())
    ours = [path for path in sys.path if path.endswith("site-packages") or (Path(path) / "aliquot").is_dir()]
    (site / "aliquot-bench.pth").write_text("\n".join(ours) + "\n", encoding="utf-8")
    plain = []
    for _ in range(3):
        began = time.perf_counter()
        run([python_of(environment), "-c", "import torch"])
        plain.append(1000 * (time.perf_counter() - began))
    python = python_of(environment)
    with scratch() as folder, up(folder, python, options=("--python", python)) as platform:
        return TorchStart(platform.cold("torch", WITH_TORCH, ["torch"]), median(plain))


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
