"""Ways to make many calls of one function, each as a program would."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from aliquot.sdk.portable import dump
from aliquot.sdk.server import ServerAddress
from aliquot.sdk.wire import PICKLE
from aliquot_bench.environments import MeasurementError
from aliquot_bench.sdk.echo_app import app, echo

BARE = "bare connections"
GATHER, THREADS, MAP, IN_TURN = "asyncio.gather", "threads", "map", "one after another"


def ways(server: ServerAddress, calls: int) -> dict[str, Callable[[], None]]:
    """Return each way by its name."""
    return {
        BARE: lambda: asyncio.run(_bare(server, calls)),
        GATHER: lambda: asyncio.run(_gathered(calls)),
        THREADS: lambda: _threads(calls),
        MAP: lambda: _check(list(echo.map(range(calls))), calls),
        IN_TURN: lambda: _check([echo.remote(number) for number in range(calls)], calls),
    }


async def _gathered(calls: int) -> None:
    _check(await asyncio.gather(*(echo.remote.aio(number) for number in range(calls))), calls)


def _threads(calls: int) -> None:
    results = [-1] * calls

    def call(number: int) -> None:
        results[number] = echo.remote(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _check(results, calls)


async def _bare(server: ServerAddress, calls: int) -> None:
    """Send each request on a connection of its own and read the reply, without interpreting it."""
    url = urlsplit(server.url)
    body = cast("bytes", dump(((1,), {}), app.name))
    head = (
        f"POST /api/v1/namespaces/_/actions/{echo.action}?blocking=true HTTP/1.1\r\nHost: {url.netloc}\r\n"
        f"Content-Type: {PICKLE}\r\nAccept: {PICKLE}\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: Basic {b64encode(server.key.encode()).decode()}\r\n\r\n"
    ).encode()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(head + body)
        reply = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not reply.startswith(b"http/1.1 200 "):
            raise MeasurementError(f"a bare connection was answered with {reply.splitlines()[0].decode()}")
        length = reply.partition(b"\r\ncontent-length:")[2].split(b"\r\n", 1)[0]
        await reader.readexactly(int(length))
        writer.close()

    await asyncio.gather(*(one() for _ in range(calls)))


def _check(results: list[int], calls: int) -> None:
    if results != list(range(calls)):
        raise MeasurementError("the SDK returned wrong results")
