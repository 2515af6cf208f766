"""A real server with one virtual device, and the functions that hold slices of it."""

import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from aliquot.core.errors import InputError
from aliquot.testing.client import NamespaceClient, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import scratch

FUNCTIONS = Path(__file__).with_name("functions")
MAX_RUN_MS = 300_000  # time limit of one call
LEAD_S = 0.3  # until all calls that are to begin together have reached their sandboxes
MAX_CONCURRENT_STARTS = 16
MAX_CONNECTIONS = 100
UNENFORCED = "not enforced"


def check_numpy() -> None:
    """Raise `InputError` if numpy, which the functions import, is not installed."""
    if importlib.util.find_spec("numpy") is None:
        raise InputError("bench sharing: numpy is not installed; install it with: pip install numpy")


def unenforced(log: str) -> str:
    """Return the reason in the server's log why slices are not enforced, or an empty text."""
    lines = [line.strip() for line in log.splitlines() if UNENFORCED in line]
    return lines[0].removeprefix("without ") if lines else ""


class SharingPlatform:
    """A running server with one virtual device."""

    def __init__(self, server: LiveServer, client: NamespaceClient) -> None:
        self._client = client
        self.unenforced = unenforced(server.log.read_text(encoding="utf-8"))

    def deploy(self, name: str, function: str, share: float, memory_mb: int = 256) -> None:
        """Deploy a file of `functions/` with a slice of this share."""
        code = (FUNCTIONS / f"{function}.py").read_text(encoding="utf-8")
        limits = {"timeout": MAX_RUN_MS, "memory": memory_mb}
        self._client.deploy(name, code, limits=limits, annotations=to_pairs({"gpu-share": share}))

    def deploy_loops(self, slices: Sequence[tuple[str, float]]) -> None:
        """Deploy matrix loops with these names and shares, and start their sandboxes.

        The sandboxes start concurrently, because a small slice takes long to start.
        """
        for name, share in slices:
            self.deploy(name, "matrix", share)
        with ThreadPoolExecutor(MAX_CONCURRENT_STARTS) as threads:
            list(threads.map(lambda each: self.call(each[0], {"turns": 1}), slices))

    def call(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Call a function and return its result."""
        return self._client.result(name, args)

    def record(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Call a function and return its activation record, whether it succeeded or failed."""
        return self._client.call(name, args)

    def together(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Make calls that all begin their work at the same moment, and return their results."""
        begin = time.monotonic() + LEAD_S
        with ThreadPoolExecutor(len(calls)) as threads:
            return list(threads.map(lambda call: self.call(call[0], {"begin": begin, **call[1]}), calls))


@contextmanager
def host_device(sharing: str) -> Iterator[SharingPlatform]:
    """Start a server with one virtual device under this sharing policy."""
    options = ("--devices", "host:1", "--sharing", sharing, "--python", sys.executable)  # which has numpy
    with scratch() as folder, LiveServer(folder / "data", *options) as server:
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS)
        with server.client(timeout=MAX_RUN_MS / 1000, limits=limits) as client:
            yield SharingPlatform(server, client)
