"""Call a server over plain sockets, so that the caller costs little beside what is measured."""

import asyncio
import base64
import json
import time
from typing import NamedTuple, Self
from urllib.parse import urlsplit


class CallTarget(NamedTuple):
    """An action of a server, and the key of its namespace."""

    host: str
    port: int
    head: bytes  # of the request, up to the length of the body

    @classmethod
    def of(cls, url: str, key: str, action: str) -> Self:
        """Return the blocking invocation of an action."""
        parts = urlsplit(url)
        authorization = base64.b64encode(key.encode()).decode()
        head = (
            f"POST /api/v1/namespaces/_/actions/{action}?blocking=true&result=true HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: Basic {authorization}\r\nContent-Type: application/json\r\nContent-Length: "
        )
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, head.encode())


class CallConnection:
    """One connection that makes one call at a time."""

    def __init__(self, target: CallTarget, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._target = target
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, target: CallTarget) -> Self:
        """Connect to the server."""
        return cls(target, *await asyncio.open_connection(target.host, target.port))

    async def call(self, **parameters: object) -> tuple[int, bytes]:
        """Return the status and the body of a call."""
        body = json.dumps(parameters).encode()
        self._writer.write(self._target.head + b"%d\r\n\r\n" % len(body) + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


async def times_of_calls(target: CallTarget, calls: int) -> list[float]:
    """Return the seconds of calls one after another. Raises `RuntimeError` if one fails."""
    connection = await CallConnection.open(target)
    found = []
    for _ in range(calls):
        begun_s = time.perf_counter()
        status, body = await connection.call()
        found.append(time.perf_counter() - begun_s)
        if status != 200:  # noqa: PLR2004 - OK
            raise RuntimeError(f"a call answered {status}: {body[:200]!r}")
    connection.close()
    return found


async def rate_of_callers(target: CallTarget, callers: int, seconds: float, **parameters: object) -> float:
    """Return the calls per second of so many callers."""
    until_s = time.perf_counter() + seconds
    done = 0

    async def call() -> None:
        nonlocal done
        connection = await CallConnection.open(target)
        while time.perf_counter() < until_s:
            status, body = await connection.call(**parameters)
            if status != 200:  # noqa: PLR2004 - OK
                raise RuntimeError(f"a call answered {status}: {body[:200]!r}")
            done += 1
        connection.close()

    begun_s = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return done / (time.perf_counter() - begun_s)
