"""Baselines that no platform can beat: a bare ASGI echo, one with a hop to a worker process, and a frame exchange.

Each runs in processes of its own: `python -m aliquot_bench.latency.baselines bare PORT`, `… hop PORT`, and
`… ping_pong SECONDS FRAMES`, which prints its figures.
"""

import asyncio
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from statistics import quantiles
from typing import Any, cast

import msgspec
import uvicorn

from aliquot_bench.latency.wrk import LoadReport

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HEADERS = [(b"content-type", b"application/json")]
LENGTH = struct.Struct("<I")
FRAME_BYTES = 64  # about the size of a call without parameters
CHUNK_BYTES = 65_536


async def bare(_scope: Message, receive: Receive, send: Send) -> None:
    """Return the body of the request."""
    await _answer(send, await _body(receive))


class WorkerHop:
    """An ASGI echo whose worker process returns the body."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames: FrameProtocol | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # the first moment with a running loop
            await receive()
            _, self._frames = await asyncio.get_running_loop().create_unix_connection(FrameProtocol, sock=self._socket)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif self._frames is not None:
            await _answer(send, await self._frames.request(await _body(receive)))


class FrameProtocol(asyncio.Protocol):
    """Frames with a length prefix. Responses arrive in the order of the requests."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def request(self, body: bytes) -> "asyncio.Future[bytes]":
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._write(LENGTH.pack(len(body)) + body)
        return answer

    def data_received(self, data: bytes) -> None:
        self._buffer = data = self._buffer + data
        offset = 0
        while len(data) - offset >= LENGTH.size:
            end = offset + LENGTH.size + LENGTH.unpack_from(data, offset)[0]
            if end > len(data):
                break
            self._waiting.popleft().set_result(data[offset + LENGTH.size : end])
            offset = end
        self._buffer = data[offset:]


def echo_bytes(connection: socket.socket) -> None:
    """Return all received bytes until the other end is closed."""
    while data := connection.recv(CHUNK_BYTES):
        connection.sendall(data)


def ping_pong(seconds: float, frames: int) -> LoadReport:
    """Exchange frames with another process over a Unix socket, with so many in flight at a time."""
    connection = _fork(echo_bytes)
    one = bytes(FRAME_BYTES)
    latencies_s: list[float] = []
    sent: deque[float] = deque()
    rest = 0
    began = now = time.perf_counter()
    connection.sendall(one * frames)
    sent.extend([began] * frames)
    while now - began < seconds:
        rest += len(connection.recv(CHUNK_BYTES))
        back, rest = divmod(rest, FRAME_BYTES)
        now = time.perf_counter()
        latencies_s.extend(now - sent.popleft() for _ in range(back))
        connection.sendall(one * back)
        sent.extend([now] * back)
    connection.close()
    cut = quantiles(latencies_s, n=100, method="inclusive")
    return LoadReport(1000 * cut[49], 1000 * cut[98], len(latencies_s) / (now - began), len(latencies_s), 0)


def _fork(child: Callable[[socket.socket], None]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        ours.close()
        try:
            child(theirs)
        finally:
            os._exit(0)  # silently, because the other end may close while frames are in flight
    theirs.close()
    return ours


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    return body


async def _answer(send: Send, body: bytes) -> None:
    headers = [*HEADERS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main(name: str, first: str, frames: str = "1") -> None:
    if name == "ping_pong":
        sys.stdout.buffer.write(msgspec.json.encode(ping_pong(float(first), int(frames))))
        return
    app, lifespan = (bare, "off") if name == "bare" else (WorkerHop(_fork(echo_bytes)), "on")
    settings: dict[str, Any] = {"http": "httptools", "loop": "uvloop", "lifespan": lifespan, "access_log": False}
    uvicorn.run(app, host="127.0.0.1", port=int(first), log_level="warning", **settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
