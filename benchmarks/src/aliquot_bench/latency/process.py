"""The processes of a measured server: start it, wait until it is ready, stop it with all its children."""

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
from aliquot_bench.latency.wrk import LoadEndpoint

MARK = "ALIQUOT_BENCH_RUN"  # environment variable by which detached children are found
START_TIMEOUT_S, STOP_TIMEOUT_S = 120.0, 3.0
TAIL_LINES = 3
# Variables that would make a server import packages of another environment.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class ServerError(MeasurementError):
    """A server failed to start or to answer. The report shows the text."""


class ServerProcess:
    """A server in a process group of its own. Leaving the context ends it and all processes that it started."""

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
        self._process = subprocess.Popen(  # noqa: S603 - fixed commands
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
        _, members = psutil.wait_procs(members, timeout=STOP_TIMEOUT_S)
        while members:  # repeat, because a process may have started another meanwhile
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(members, timeout=STOP_TIMEOUT_S)
            members = self.processes()
        process.wait()
        if self._output is not None:
            self._output.close()

    def processes(self) -> list[psutil.Process]:
        """Return the server, its children, and the processes with its mark, which include detached ones."""
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
        """Return the CPU time of all its processes so far."""
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def wait_until(
        self, ready: Callable[[], bool], *, timeout_s: float = START_TIMEOUT_S, every_s: float = 0.02
    ) -> None:
        """Call `ready` until it is true. Raise `ServerError` if the server ends or takes too long."""
        while not ready():
            code = self._running().poll()
            if code is not None:
                raise ServerError(f"ended with {code} before it answered: {self.last_output()}")
            if time.perf_counter() - self.started > timeout_s:
                raise ServerError(f"did not answer within {timeout_s:g} s: {self.last_output()}")
            time.sleep(every_s)

    def last_output(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-TAIL_LINES:]) or "it printed nothing"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("it has not been started")
        return self._process


class CpuUsage:
    """The CPU time of a server and of the rest of the machine, since the object was created."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = self._read()

    def since_start(self) -> tuple[float, float]:
        """Return the CPU seconds of the server, and the part of the machine that other processes used."""
        now = self._read()
        wall_s, idle_s, server_s, callers_s = (after - before for after, before in zip(now, self._before, strict=True))
        all_s = wall_s * (os.cpu_count() or 1)
        others_s = all_s - idle_s - server_s - callers_s
        return server_s, min(1.0, max(0.0, others_s / all_s)) if all_s else 0.0

    def _read(self) -> tuple[float, float, float, float]:
        machine = psutil.cpu_times()
        waited = resource.getrusage(
            resource.RUSAGE_CHILDREN
        )  # the CPU time of wrk, because the server has not been waited for yet
        callers_s = waited.ru_utime + waited.ru_stime
        return time.perf_counter(), machine.idle + machine.iowait, self._server.cpu_s(), callers_s


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(endpoint: LoadEndpoint) -> bool:
    """Call every path once, and return whether all succeed. All of them are warm afterwards."""
    with httpx.Client(base_url=endpoint.url, headers=endpoint.headers, timeout=30) as client:
        for path, headers in endpoint.requests():
            try:
                answer = client.request(endpoint.method, path, content=endpoint.body, headers=headers)
            except httpx.TransportError:
                return False
            if not answer.is_success:
                return False
    return True
