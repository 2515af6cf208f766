"""Readers that ask as open pages do: one stream each, and what ran where and counts every three seconds.

They are in a process of their own.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from aliquot.testing.client import certificates, check
from aliquot.testing.server import LiveServer

RENEW_S = 3.0


@contextmanager
def open_pages(server: LiveServer, count: int) -> Iterator[None]:
    """Read as so many overview pages of the operator do, without browsers that would take the processor."""
    if not count:
        yield
        return
    program = f"import {__name__} as readers; readers.main({server.url!r}, {server.operator!r}, {count})"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command) as process:  # noqa: S603 - our own program
        try:
            yield
        finally:
            process.kill()


class ConsoleReader:
    """Asks as one open page does."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"authorization": f"Bearer {token}"}
        self._client = httpx.Client(base_url=f"{url}/api/v1/observe/", headers=headers, verify=certificates())

    def read_stream(self) -> None:
        with suppress(httpx.HTTPError), self._client.stream("GET", "stream", timeout=None) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    json.loads(line[6:])

    def ask(self) -> None:
        while True:
            with suppress(httpx.HTTPError):
                self._client.get("slices?last=60", timeout=30)
                self._client.get("series?last=60", timeout=30)
            time.sleep(RENEW_S)


def main(url: str, token: str, count: int) -> None:
    readers = [ConsoleReader(url, token) for _ in range(count)]
    threads = [threading.Thread(target=read) for each in readers for read in (each.read_stream, each.ask)]
    for thread in threads:
        thread.start()


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
