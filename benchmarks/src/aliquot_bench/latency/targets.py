"""The targets of the benchmark. Each starts a server, waits until it answers, warms it up, loads it and stops it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from aliquot_bench.environments import cache_folder, prepare, run, scratch, version
from aliquot_bench.latency.peers import PeerSystem
from aliquot_bench.latency.process import CpuUsage, ServerError, ServerProcess, answers, free_port
from aliquot_bench.latency.wrk import LoadEndpoint, LoadReport, run_wrk

CALLERS = 32  # concurrent connections
WARM_S = 1.0


class LoadSample(Struct, frozen=True):
    """One round of one target, with one caller and then with `CALLERS`."""

    one_caller: LoadReport
    all_callers: LoadReport
    cpu_us: float | None = None  # CPU time of all its processes per request, with all callers
    other_load: float | None = None  # part of the machine that other processes used meanwhile

    @property
    def errors(self) -> int:
        return self.one_caller.errors + self.all_callers.errors


class LatencyTarget(Protocol):
    """A server that can be measured."""

    name: str
    settings: str

    def prepare(self, on_step: Callable[[str], None]) -> str:
        """Install the server if necessary and return its version. Raise `MeasurementError` if this fails."""
        ...

    def measure(self, seconds: float) -> LoadSample:
        """Start, load and stop the server. Raise `MeasurementError` if this fails."""
        ...


class BaselineTarget:
    """A bare server of `baselines.py`."""

    def __init__(self, kind: str, name: str, settings: str) -> None:
        self.name, self.settings, self._kind = name, settings, kind

    def prepare(self, on_step: Callable[[str], None]) -> str:
        return ""

    def measure(self, seconds: float) -> LoadSample:
        port = free_port()
        command = [sys.executable, "-m", "aliquot_bench.latency.baselines", self._kind, str(port)]
        with scratch() as folder:
            return load_server(command, LoadEndpoint(f"http://127.0.0.1:{port}"), folder, seconds)


class PingPongTarget:
    """Two processes that exchange frames and measure themselves."""

    name = "Unix socket"
    settings = "two Python processes throw frames of 64 bytes; no HTTP"

    def prepare(self, on_step: Callable[[str], None]) -> str:
        return ""

    def measure(self, seconds: float) -> LoadSample:
        command = [sys.executable, "-m", "aliquot_bench.latency.baselines", "ping_pong", str(seconds)]
        one_caller, all_callers = (
            msgspec.json.decode(run([*command, str(frames)]), type=LoadReport) for frames in (1, CALLERS)
        )
        return LoadSample(one_caller, all_callers)


class PeerTarget:
    """One of the compared systems."""

    def __init__(self, peer: PeerSystem) -> None:
        self.name, self.settings, self._peer = peer.name, peer.settings, peer
        self._environment = cache_folder() / peer.folder

    def prepare(self, on_step: Callable[[str], None]) -> str:
        prepare(self._environment, self._peer.requirements, on_step, self._peer.interpreter)
        return version(self._environment, self._peer.requirements[-1])

    def measure(self, seconds: float) -> LoadSample:
        port = free_port()
        with scratch() as folder:
            program = folder / "service.py"
            program.write_text(self._peer.program, encoding="utf-8")
            command = self._peer.start(self._environment, program, port)
            return load_server(command, self._peer.endpoint(port), folder, seconds, self._peer.environment)


def load_server(
    command: Sequence[str],
    endpoint: LoadEndpoint,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> LoadSample:
    """Start a server, measure it and stop it."""
    with ServerProcess(command, folder, environment) as server:
        server.wait_until(lambda: answers(endpoint))
        return load(server, endpoint, folder, seconds)


def load(server: ServerProcess, endpoint: LoadEndpoint, folder: Path, seconds: float) -> LoadSample:
    """Warm up a server and measure it. Raise `ServerError` if it does not answer after the load."""
    run_wrk(endpoint, folder, connections=CALLERS, seconds=WARM_S)
    one_caller = run_wrk(endpoint, folder, connections=1, seconds=seconds)
    usage = CpuUsage(server)
    all_callers = run_wrk(endpoint, folder, connections=CALLERS, seconds=seconds)
    server_s, others = usage.since_start()
    if not answers(endpoint):
        raise ServerError("no longer answers after the load")
    cpu_us = 1e6 * server_s / all_callers.requests if all_callers.requests else None
    return LoadSample(one_caller, all_callers, cpu_us, others)
