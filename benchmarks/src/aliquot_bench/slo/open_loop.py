"""An open loop of requests: each is sent at its time, whether or not earlier ones have been answered."""

import asyncio
import time
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

from msgspec import Struct

from aliquot_bench.environments import MeasurementError

MAX_CONNECTIONS = 400
REPLY_TIMEOUT_S = 30.0
HTTP_OK = 200


class TimedRequest(Struct, frozen=True):
    """A request of HTTP, and the time at which it is sent."""

    at_s: float
    message: bytes


class TimedReply(Struct, frozen=True):
    """The answer to a request."""

    request: int  # its number
    status: int
    took_s: float  # since it was sent
    body: bytes


def post(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """Return the bytes of a POST request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str) -> bytes:
    """Return the bytes of a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def send_all(url: str, requests: Sequence[TimedRequest]) -> list[TimedReply]:
    """Send requests at their times over as many connections as needed, and return all answers."""

    async def run() -> list[TimedReply]:
        async with _Sender(url) as sender:
            return await sender.send(requests)

    return asyncio.run(run())


def throughput(url: str, messages: Sequence[bytes], callers: int, seconds: float) -> float:
    """Send the messages in turn from callers that wait for each answer, and return the answers per second."""

    async def run() -> float:
        async with _Sender(url) as sender:
            return await sender.loop(messages, callers, seconds)

    return asyncio.run(run())


class _Sender:
    """The connections to a server."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "localhost", address.port or 80
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._connections = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, requests: Sequence[TimedRequest]) -> list[TimedReply]:
        began = time.perf_counter()
        tasks = []
        for number, request in enumerate(requests):
            delay = request.at_s - (time.perf_counter() - began)
            if delay > 0:
                await asyncio.sleep(delay)
            tasks.append(asyncio.create_task(self._exchange(number, request.message)))
        replies = await asyncio.gather(*tasks)
        return list(replies)

    async def loop(self, messages: Sequence[bytes], callers: int, seconds: float) -> float:
        ends = time.perf_counter() + seconds
        counts = [0] * callers

        async def call(caller: int) -> None:
            while time.perf_counter() < ends:
                reply = await self._exchange(caller, messages[(caller + counts[caller]) % len(messages)])
                if reply.status != HTTP_OK:
                    raise MeasurementError(f"a call was answered with {reply.status}: {reply.body[:200]!r}")
                counts[caller] += 1

        await asyncio.gather(*(call(caller) for caller in range(callers)))
        return sum(counts) / (seconds + time.perf_counter() - ends)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        self._writers.append(writer)
        return reader, writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def _exchange(self, number: int, message: bytes) -> TimedReply:
        async with self._connections:
            reader, writer = connection = self._idle.pop() if self._idle else await self._connect()
            began = time.perf_counter()
            writer.write(message)
            try:
                status, body = await asyncio.wait_for(_read(reader), REPLY_TIMEOUT_S)
            except (TimeoutError, asyncio.IncompleteReadError) as error:
                raise MeasurementError(f"request {number} got no answer within {REPLY_TIMEOUT_S:g} s") from error
            took_s = time.perf_counter() - began
            self._idle.append(connection)
            return TimedReply(number, status, took_s, body)


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = next((int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    body = await reader.readexactly(length) if length else b""
    return int(lines[0].split()[1]), body
