"""Connections to the console that bring no request in time are closed, and others are not."""

import asyncio
from contextlib import suppress

import uvicorn

from aliquot.live.console import protocol
from aliquot.live.console.protocol import ConsoleProtocol
from aliquot.testing.waiting import wait_on_loop

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD_S = 1.0


async def application(_scope, _receive, send):
    await asyncio.sleep(1.1 * HEAD_S)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def serve(use):
    options = {"port": 0, "lifespan": "off", "log_config": None, "log_level": "error"}
    server = uvicorn.Server(uvicorn.Config(application, http=ConsoleProtocol, **options))
    running = asyncio.create_task(server.serve())
    await wait_on_loop(lambda: server.started, what="the server to start")
    port = server.servers[0].sockets[0].getsockname()[1]
    writers = []

    async def connect():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    await use(connect)
    for writer in writers:
        writer.close()
    server.should_exit = True
    await running


def test_connections_without_a_whole_head_are_closed(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.1)

    async def use(connect):
        silent, _ = await connect()
        slow, writer = await connect()
        writer.write(REQUEST[:-1])
        assert await silent.read() == b""
        with suppress(ConnectionResetError):
            assert await slow.read() == b""

    asyncio.run(serve(use))


def test_requests_that_take_long_and_later_ones_on_the_connection_are_answered(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", HEAD_S)

    async def use(connect):
        reader, writer = await connect()
        for _ in range(2):
            writer.write(REQUEST)
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(2) == b"ok"
        writer.write(REQUEST[:5])
        with suppress(ConnectionResetError):
            assert await reader.read() == b""

    asyncio.run(serve(use))
