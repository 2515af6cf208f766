"""What is measured alike: a server is started alone, asked until it answers, warmed, loaded, and stopped."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from aliquot_bench.environments import cache_folder, prepare, run, scratch, version
from aliquot_bench.latency.peers import Peer
from aliquot_bench.latency.process import CpuUsage, ServerError, ServerProcess, answers, free_port
from aliquot_bench.latency.wrk import Endpoint, LoadReport, run_wrk

CALLERS = 32
WARM_S = 1.0


class LoadSample(Struct, frozen=True):
    """One round of one target: one caller at a time, then as many as a crowd has."""

    alone: LoadReport
    crowd: LoadReport
    cpu_us: float | None = None  # of all its processes, for each request of the crowd: what others do changes it least
    others: float | None = None  # what share of the machine was meanwhile busy with neither it nor the callers

    @property
    def errors(self) -> int:
        return self.alone.errors + self.crowd.errors


class Target(Protocol):
    name: str
    settings: str

    def prepare(self, on_step: Callable[[str], None]) -> str:
        """Install what is missing and return the version; a `PeerError` says why it cannot be had."""
        ...

    def measure(self, seconds: float) -> LoadSample:
        """Start, load and stop it; a `PeerError` says what did not work."""
        ...


class BaselineTarget:
    """A bare server of ours."""

    def __init__(self, kind: str, name: str, settings: str) -> None:
        self.name, self.settings, self._kind = name, settings, kind

    def prepare(self, on_step: Callable[[str], None]) -> str:
        return ""

    def measure(self, seconds: float) -> LoadSample:
        port = free_port()
        command = [sys.executable, "-m", "aliquot_bench.latency.baselines", self._kind, str(port)]
        with scratch() as folder:
            return load_server(command, Endpoint(f"http://127.0.0.1:{port}"), folder, seconds)


class PingPongTarget:
    """Two processes without any server: they measure themselves."""

    name = "Unix socket"
    settings = "two Python processes throw frames of 64 bytes; no HTTP"

    def prepare(self, on_step: Callable[[str], None]) -> str:
        return ""

    def measure(self, seconds: float) -> LoadSample:
        command = [sys.executable, "-m", "aliquot_bench.latency.baselines", "ping_pong", str(seconds)]
        alone, crowd = (msgspec.json.decode(run([*command, str(frames)]), type=LoadReport) for frames in (1, CALLERS))
        return LoadSample(alone, crowd)


class PeerTarget:
    def __init__(self, peer: Peer) -> None:
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
    endpoint: Endpoint,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> LoadSample:
    with ServerProcess(command, folder, environment) as server:
        server.wait_until(lambda: answers(endpoint))
        return load(server, endpoint, folder, seconds)


def load(server: ServerProcess, endpoint: Endpoint, folder: Path, seconds: float) -> LoadSample:
    """Warm it with a crowd, then measure; a server that no longer answers well afterwards has failed."""
    run_wrk(endpoint, folder, connections=CALLERS, seconds=WARM_S)
    alone = run_wrk(endpoint, folder, connections=1, seconds=seconds)
    use = CpuUsage(server)
    crowd = run_wrk(endpoint, folder, connections=CALLERS, seconds=seconds)
    server_s, others = use.since()
    if not answers(endpoint):
        raise ServerError("does not answer any more after the load")
    return LoadSample(alone, crowd, 1e6 * server_s / crowd.requests if crowd.requests else None, others)
