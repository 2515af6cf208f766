"""Servers under measurement as processes: started alone, known to be ready, stopped with everything they started."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx
import psutil  # type: ignore[import-untyped]

from aliquot_bench.environments import MeasurementError
from aliquot_bench.latency.wrk import Endpoint

MARK = "ALIQUOT_BENCH_RUN"  # in the environment of all that a server starts, however it detaches itself
START_S, STOP_S = 120.0, 3.0
TAIL_LINES = 3
# What would lead a server to packages other than its own environment's.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class ServerError(MeasurementError):
    """A server did not do what it was started for; the reason stands in the report."""


class ServerProcess:
    """A process group of its own; on leaving, it and whatever it started are gone."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._mark = uuid.uuid4().hex
        self._log = folder / "server.log"
        clean = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        self._environment = {**clean, **(environment or {}), MARK: self._mark}
        self._command, self._folder = list(command), folder
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.started = 0.0

    def __enter__(self) -> Self:
        self._output = self._log.open("wb")
        self.started = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own arguments
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._running()
        members = self.processes()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        _, members = psutil.wait_procs(members, timeout=STOP_S)
        while members:  # again: one that is ended may have started another meanwhile
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(members, timeout=STOP_S)
            members = self.processes()
        process.wait()
        if self._output is not None:
            self._output.close()

    def processes(self) -> list[psutil.Process]:
        """It, its children, all that carry the mark: a daemon leaves its parent, a sandbox has no environment."""
        found: set[psutil.Process] = set()
        with contextlib.suppress(psutil.Error):
            itself = psutil.Process(self._running().pid)
            found.update([itself, *itself.children(recursive=True)])
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process)
        return sorted(found, key=lambda process: process.pid)

    def cpu_s(self) -> float:
        """Processor time so far of all its processes."""
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def wait_until(self, ready: Callable[[], bool], *, within_s: float = START_S, every_s: float = 0.02) -> None:
        """Ask `ready` again and again; a server that ends or takes too long is an error with its last words."""
        while not ready():
            code = self._running().poll()
            if code is not None:
                raise ServerError(f"ended with {code} before it answered: {self.last_words()}")
            if time.perf_counter() - self.started > within_s:
                raise ServerError(f"did not answer within {within_s:g} s: {self.last_words()}")
            time.sleep(every_s)

    def last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-TAIL_LINES:]) or "it said nothing"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("it has not been started")
        return self._process


class CpuUsage:
    """From its making on."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = self._read()

    def since(self) -> tuple[float, float]:
        """The server's seconds, and the share of the machine that neither it nor the callers had."""
        now = self._read()
        wall_s, idle_s, server_s, callers_s = (after - before for after, before in zip(now, self._before, strict=True))
        all_s = wall_s * (os.cpu_count() or 1)
        others_s = all_s - idle_s - server_s - callers_s
        return server_s, min(1.0, max(0.0, others_s / all_s)) if all_s else 0.0

    def _read(self) -> tuple[float, float, float, float]:
        machine = psutil.cpu_times()
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)  # wrk, which is waited for; the server is not yet
        callers_s = waited.ru_utime + waited.ru_stime
        return time.perf_counter(), machine.idle + machine.iowait, self._server.cpu_s(), callers_s


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(endpoint: Endpoint) -> bool:
    """Whether every path answers a call with success: once each, so that all of them are warm afterwards."""
    with httpx.Client(base_url=endpoint.url, headers=endpoint.headers, timeout=30) as client:
        for path in endpoint.paths:
            try:
                answer = client.post(path, content=endpoint.body, headers={"Content-Type": "application/json"})
            except httpx.TransportError:
                return False
            if not answer.is_success:
                return False
    return True
