"""A real server with one virtual device, and functions with slices of it."""

import importlib.util
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from aliquot.core.errors import InputError
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import MeasurementError, scratch

FUNCTIONS = Path(__file__).with_name("functions")
MAX_RUN_MS = 300_000  # a run
POLL_S = 0.05
LEAD_S = 0.3  # for calls that are to begin at one moment: until all of them wait for it
AT_ONCE = 16
UNENFORCED = "not enforced"


def check_numpy() -> None:
    """Say at once that the functions cannot be run."""
    if importlib.util.find_spec("numpy") is None:
        raise InputError("bench sharing: numpy is not installed; pip install 'aliquot[plot]' brings it")


def unenforced(log: str) -> str:
    """What the server said, when it started, that it cannot enforce; nothing when it can."""
    lines = [line.strip() for line in log.splitlines() if UNENFORCED in line]
    return lines[0].removeprefix("without ") if lines else ""


class SharingPlatform:
    """A running server with one device."""

    def __init__(self, server: LiveServer, client: httpx.Client) -> None:
        self._server, self._client = server, client
        self.unenforced = unenforced(server.log.read_text(encoding="utf-8"))

    def put(self, name: str, function: str, share: float, memory_mb: int = 256) -> None:
        """Deploy a function with such a slice."""
        code = (FUNCTIONS / f"{function}.py").read_text(encoding="utf-8")
        limits = {"timeout": MAX_RUN_MS, "memory": memory_mb}
        self._server.deploy(name, code, limits=limits, annotations=[{"key": "gpu-share", "value": share}])

    def put_loops(self, slices: Sequence[tuple[str, float]]) -> None:
        """Matrix loops with these slices. They are made side by side: a small slice takes its time."""
        for name, share in slices:
            self.put(name, "matrix", share)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda each: self.call(each[0], {"turns": 1}), slices))

    def call(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        record = self.record(name, args)
        if not record["response"]["success"]:
            raise MeasurementError(f"{name}: {record['response']['result']}")
        result: dict[str, Any] = record["response"]["result"]
        return result

    def record(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """The call's record, whatever became of it."""
        answer = self._client.post(f"actions/{name}", params={"blocking": "true"}, json=args)
        known: dict[str, Any] = answer.json()
        if "activationId" not in known:
            raise MeasurementError(f"{name} answered {answer.status_code}: {answer.text[:200]}")
        while "response" not in known:
            time.sleep(POLL_S)
            asked = self._client.get(f"activations/{known['activationId']}")
            known |= asked.json() if asked.is_success else {}
        return known

    def together(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        """The results of calls that begin at one moment."""
        begin = time.monotonic() + LEAD_S
        with ThreadPoolExecutor(len(calls)) as threads:
            return list(threads.map(lambda call: self.call(call[0], {"begin": begin, **call[1]}), calls))


@contextmanager
def host_device(sharing: str) -> Iterator[SharingPlatform]:
    """One virtual device under that way of sharing."""
    with scratch() as folder, LiveServer(folder / "data", "--devices", "host:1", "--sharing", sharing) as server:
        most = httpx.Limits(max_connections=100)
        with server.client(timeout=MAX_RUN_MS / 1000, limits=most) as client:
            yield SharingPlatform(server, client)
