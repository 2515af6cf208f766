"""The origin process: an HTTP server for generated files, with the latency and, if requested, the rate of a NAS.

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

from aliquot_bench.origin.content import PIECE_BYTES, pieces

PACED_PIECE_BYTES = 1 << 15
BURST_S = 0.003  # that may be sent without waiting, because sleeps are no finer
MODIFIED = "Mon, 02 Jan 2023 10:00:00 GMT"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class OriginSettings(Struct, frozen=True):
    """The files of the origin and how it serves them."""

    files: dict[str, int]  # size in bytes by path
    host: str = "127.0.0.1"
    latency_s: float = 0  # waited before each response and for each new connection, as a round trip
    paced_bytes_per_s: float | None = None  # None if the network interface limits the rate
    commands: list[list[str]] = []  # run first, inside its network namespace


class OriginStarted(Struct, frozen=True):
    """The first message, with the id of the process inside its network namespace."""

    pid: int


class OriginListening(Struct, frozen=True):
    """The second message, with the port or the error of a setup command."""

    port: int
    error: str = ""


class SentCounts(Struct, frozen=True):
    """Bytes of content sent by path, and the number of requests, since the start."""

    sent: dict[str, int]
    requests: int


class Pacer:
    """A rate limit for all connections together. The caller passes the time and does the locking."""

    def __init__(self, bytes_per_s: float) -> None:
        self._each_s = 1 / bytes_per_s
        self._free_s = 0.0  # time at which all reserved bytes have been sent

    def reserve(self, size: int, *, now: float) -> float:
        """Reserve the sending of so many bytes, and return the seconds to wait before it."""
        self._free_s = max(self._free_s, now) + size * self._each_s
        return max(0.0, self._free_s - now - BURST_S)


class OriginServer(ThreadingHTTPServer):
    """The HTTP server of the origin."""

    daemon_threads = True

    def __init__(self, settings: OriginSettings) -> None:
        super().__init__((settings.host, 0), OriginHandler)
        self.settings = settings
        self.sent: Counter[str] = Counter()
        self.requests = 0
        self.lock = threading.Lock()
        self._pacer = Pacer(settings.paced_bytes_per_s) if settings.paced_bytes_per_s else None

    @property
    def piece_bytes(self) -> int:
        return PACED_PIECE_BYTES if self._pacer else PIECE_BYTES

    def pace(self, size: int) -> None:
        """Wait until so many bytes may be sent."""
        if self._pacer is None:
            return
        with self.lock:
            wait_s = self._pacer.reserve(size, now=time.monotonic())
        if wait_s:
            time.sleep(wait_s)

    def sent_counts(self) -> SentCounts:
        with self.lock:
            return SentCounts(dict(self.sent), self.requests)

    def names_in(self, folder: str) -> list[str]:
        """Return the names on a directory page: files, and folders with a trailing slash. Hidden names are left out."""
        rest = (path[len(folder) :] for path in self.settings.files if path.startswith(folder))
        names = {head + slash for head, slash, _ in (path.partition("/") for path in rest)}
        return sorted(name for name in names if not name.startswith("."))

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing if a reader disconnects during a response."""


class OriginHandler(BaseHTTPRequestHandler):
    """The handler of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: OriginServer

    def setup(self) -> None:
        super().setup()
        time.sleep(self.server.settings.latency_s)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
        """Log nothing, because the standard streams carry messages."""

    def do_HEAD(self) -> None:
        self._respond(content=False)

    def do_GET(self) -> None:
        self._respond(content=True)

    def _respond(self, *, content: bool) -> None:
        with self.server.lock:
            self.server.requests += 1
        time.sleep(self.server.settings.latency_s)
        path = unquote(urlsplit(self.path).path).lstrip("/")
        size = self.server.settings.files.get(path)
        if size is not None:
            self._send_file(path, size, content=content)
        elif (not path or path.endswith("/")) and (names := self.server.names_in(path)):
            self._send_page(names, content=content)
        else:
            self._send_head(HTTPStatus.NOT_FOUND, 0)

    def _send_page(self, names: list[str], *, content: bool) -> None:
        lines = "".join(f'<a href="{quote(name)}">{name}</a><br>\n' for name in names)
        body = f"<!DOCTYPE html><html><body>\n{lines}</body></html>\n".encode()
        self._send_head(HTTPStatus.OK, len(body), {"Content-Type": "text/html; charset=utf-8"})
        if content:
            self.wfile.write(body)

    def _send_file(self, path: str, size: int, *, content: bool) -> None:
        wanted = parse_range(self.headers.get("Range", ""), size)
        if wanted is None:
            self._send_head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, {"Content-Range": f"bytes */{size}"})
            return
        start, length = wanted
        headers = {"ETag": f'"{size:x}"', "Last-Modified": MODIFIED, "Accept-Ranges": "bytes"}
        headers["Content-Type"] = "application/octet-stream"
        if "Range" in self.headers:
            headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
        self._send_head(HTTPStatus.PARTIAL_CONTENT if "Range" in self.headers else HTTPStatus.OK, length, headers)
        if content:
            self._send(path, start, length)

    def _send(self, path: str, start: int, length: int) -> None:
        for piece in pieces(path, start, length, self.server.piece_bytes):
            self.server.pace(len(piece))
            self.wfile.write(piece)
            with self.server.lock:
                self.server.sent[path] += len(piece)

    def _send_head(self, status: HTTPStatus, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return start and length of a Range header, of the whole file without one, or None if it is not satisfiable."""
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
    settings = msgspec.json.decode(next(lines), type=OriginSettings)
    for command in settings.commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
        if done.returncode != 0:
            _write(OriginListening(0, f"{' '.join(command)}: {done.stderr.strip() or done.returncode}"))
            return
    server = OriginServer(settings)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _write(OriginListening(server.server_address[1]))
    for _ in lines:
        _write(server.sent_counts())


if __name__ == "__main__":
    main()
