"""The origin process: an HTTP server for generated files, with the latency and, if asked for, the rate of a NAS.

It speaks lines of JSON on its standard streams. It first writes `OriginStarted`, inside its own network namespace if it
has one. It then reads `OriginSettings`, sets up its network interface, listens, and writes `OriginListening`. After
that it answers every empty line with `SentCounts`. It ends when its standard input ends, which also happens if its
parent is killed. Its network namespace and the interfaces in it end with the process.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct

from aliquot_bench.origin.content import PIECE, pieces

PACED_PIECE = 1 << 15
BURST_S = 0.003  # of sending that is let through at once: sleeps are no finer
MODIFIED = "Mon, 02 Jan 2023 10:00:00 GMT"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class OriginSettings(Struct, frozen=True):
    files: dict[str, int]  # path and size
    host: str = "127.0.0.1"
    latency_s: float = 0  # before each answer, and before a new connection is served: a round trip
    paced_bytes_per_s: float | None = None  # none: the cable itself is shaped
    commands: list[list[str]] = []  # to run first, within its namespace


class OriginStarted(Struct, frozen=True):
    pid: int


class OriginListening(Struct, frozen=True):
    port: int
    error: str = ""


class SentCounts(Struct, frozen=True):
    """Since it began: bytes of content by path, and answers."""

    sent: dict[str, int]
    requests: int


class Pacer:
    """`reserve` says how long to wait before so many bytes may be sent. Time is an argument, locking the caller's."""

    def __init__(self, bytes_per_s: float) -> None:
        self._each_s = 1 / bytes_per_s
        self._free_s = 0.0  # when everything that was reserved has been sent

    def reserve(self, size: int, *, now: float) -> float:
        self._free_s = max(self._free_s, now) + size * self._each_s
        return max(0.0, self._free_s - now - BURST_S)


class OriginServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, orders: OriginSettings) -> None:
        super().__init__((orders.host, 0), OriginHandler)
        self.orders = orders
        self.sent: Counter[str] = Counter()
        self.requests = 0
        self.lock = threading.Lock()
        self._pacer = Pacer(orders.paced_bytes_per_s) if orders.paced_bytes_per_s else None

    @property
    def piece(self) -> int:
        return PACED_PIECE if self._pacer else PIECE

    def pace(self, size: int) -> None:
        if self._pacer is None:
            return
        with self.lock:
            wait_s = self._pacer.reserve(size, now=time.monotonic())
        if wait_s:
            time.sleep(wait_s)

    def counted(self) -> SentCounts:
        with self.lock:
            return SentCounts(dict(self.sent), self.requests)

    def names_in(self, folder: str) -> list[str]:
        """What a directory page shows: files, and folders with a stroke at the end; not what begins with a dot."""
        rest = (path[len(folder) :] for path in self.orders.files if path.startswith(folder))
        names = {head + stroke for head, stroke, _ in (path.partition("/") for path in rest)}
        return sorted(name for name in names if not name.startswith("."))

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that goes away in the middle is nothing to speak of."""


class OriginHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: OriginServer

    def setup(self) -> None:
        super().setup()
        time.sleep(self.server.orders.latency_s)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: its standard streams are for `SentCounts`."""

    def do_HEAD(self) -> None:
        self._answer(content=False)

    def do_GET(self) -> None:
        self._answer(content=True)

    def _answer(self, *, content: bool) -> None:
        with self.server.lock:
            self.server.requests += 1
        time.sleep(self.server.orders.latency_s)
        path = unquote(urlsplit(self.path).path).lstrip("/")
        size = self.server.orders.files.get(path)
        if size is not None:
            self._file(path, size, content=content)
        elif (not path or path.endswith("/")) and (names := self.server.names_in(path)):
            self._page(names, content=content)
        else:
            self._say(HTTPStatus.NOT_FOUND, 0)

    def _page(self, names: list[str], *, content: bool) -> None:
        lines = "".join(f'<a href="{quote(name)}">{name}</a><br>\n' for name in names)
        body = f"<!DOCTYPE html><html><body>\n{lines}</body></html>\n".encode()
        self._say(HTTPStatus.OK, len(body), {"Content-Type": "text/html; charset=utf-8"})
        if content:
            self.wfile.write(body)

    def _file(self, path: str, size: int, *, content: bool) -> None:
        wanted = parse_range(self.headers.get("Range", ""), size)
        if wanted is None:
            self._say(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, {"Content-Range": f"bytes */{size}"})
            return
        start, length = wanted
        told = {"ETag": f'"{size:x}"', "Last-Modified": MODIFIED, "Accept-Ranges": "bytes"}
        told["Content-Type"] = "application/octet-stream"
        if "Range" in self.headers:
            told["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
        self._say(HTTPStatus.PARTIAL_CONTENT if "Range" in self.headers else HTTPStatus.OK, length, told)
        if content:
            self._send(path, start, length)

    def _send(self, path: str, start: int, length: int) -> None:
        for piece in pieces(path, start, length, self.server.piece):
            self.server.pace(len(piece))
            self.wfile.write(piece)
            with self.server.lock:
                self.server.sent[path] += len(piece)

    def _say(self, status: HTTPStatus, length: int, told: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (told or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and length that a Range header asks for; all without one; nothing when it cannot be had."""
    if not header:
        return 0, size
    found = _RANGE.fullmatch(header)
    if found is None:
        return None
    start = int(found[1])
    end = min(size, int(found[2]) + 1 if found[2] else size)
    return (start, end - start) if start < end else None


def _lines() -> Iterator[bytes]:
    yield from sys.stdin.buffer


def _write(message: Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    _write(OriginStarted(os.getpid()))
    lines = _lines()
    orders = msgspec.json.decode(next(lines), type=OriginSettings)
    for command in orders.commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        if done.returncode != 0:
            _write(OriginListening(0, f"{' '.join(command)}: {done.stderr.strip() or done.returncode}"))
            return
    server = OriginServer(orders)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _write(OriginListening(server.server_address[1]))
    for _ in lines:
        _write(server.counted())


if __name__ == "__main__":
    main()
