"""Readers that ask as open pages do: one stream each, and what ran where and counts every three seconds."""

import json
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from aliquot.testing.client import certificates, check
from aliquot.testing.server import LiveServer

RENEW_S = 3.0


class ConsoleReaders:
    """So many overview pages of the operator, without a browser that would take the processor from the server."""

    def __init__(self, server: LiveServer, count: int) -> None:
        self._server = server
        self._ended = threading.Event()
        reads = (self._read_stream, self._ask)
        self._threads = [threading.Thread(target=read) for _ in range(count) for read in reads]
        self.ticks = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _client(self) -> httpx.Client:
        headers = {"authorization": f"Bearer {self._server.operator}"}
        return httpx.Client(base_url=f"{self._server.url}/api/v1/observe/", headers=headers, verify=certificates())

    def _read_stream(self) -> None:
        with self._client() as client, suppress(httpx.HTTPError), client.stream("GET", "stream", timeout=3) as stream:
            for line in stream.iter_lines():
                self.ticks += line.startswith("event: tick")
                if self._ended.is_set():
                    return

    def _ask(self) -> None:
        with self._client() as client:
            while not self._ended.wait(RENEW_S):
                with suppress(httpx.HTTPError):
                    client.get("slices?last=60", timeout=30)
                    client.get("series?last=60", timeout=30)


def search_times(server: LiveServer, queries: list[str]) -> list[float]:
    """Return how many seconds each search takes."""
    headers = {"authorization": f"Bearer {server.operator}"}
    taken = []
    with httpx.Client(base_url=server.url, headers=headers, verify=certificates(), timeout=120) as client:
        for query in queries:
            began = time.perf_counter()
            check(client.get(query))
            taken.append(time.perf_counter() - began)
    return taken


def login_address(server: LiveServer) -> str:
    """Return an address of the console that logs in the operator once, as `aliquot console` makes it."""
    console = str(json.loads((server.data / "local.json").read_text(encoding="utf-8"))["console"])
    headers = {"authorization": f"Bearer {server.operator}"}
    code = httpx.post(f"{console}codes", headers=headers, verify=certificates()).raise_for_status().json()["code"]
    return f"{console}#code={code}"
