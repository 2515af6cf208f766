"""A gateway behind a real server on a real socket, and raw connections to it."""

import asyncio
import base64
import json
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from gateway_client import gateway

from aliquot.live.gateway.invocation.protocol import make_protocol
from aliquot.live.gateway.processes.frames import GatewayStart
from aliquot.live.gateway.processes.gateway_link import GatewayLink
from aliquot.live.gateway.processes.process import forwarding_protocol
from aliquot.live.gateway.processes.scheduler_link import SchedulerLink
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.testing.waiting import wait_on_loop


class Wire:
    """A raw connection to the gateway."""

    def __init__(self, reader, writer, key):
        self.reader, self.writer = reader, writer
        self.use_key(key)

    def use_key(self, key):
        self._authorization = base64.b64encode(key.encode()).decode()

    def head(self, method, path, **headers):
        lines = [f"{method} {path} HTTP/1.1", "Host: gateway", f"Authorization: Basic {self._authorization}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def error(self):
        status, headers, body = await self.answer()
        return status, json.loads(body)["error"], headers

    def close(self):
        self.writer.close()


SERVED = {"fast": True, "forwarded": False, "keep_alive_s": 5}


@asynccontextmanager
async def forwarded(app, settings):
    """Yield the application and the HTTP protocol of a gateway process, which here is a part of this one."""
    ours, theirs = socket.socketpair()
    start = GatewayStart(settings, count=1, grace_s=1, certificate=None, certificate_key=None)
    loop = asyncio.get_running_loop()
    gateway_end = loop.create_unix_connection(lambda: GatewayLink(app, start), sock=ours)
    (transport, _), (_, link) = await asyncio.gather(
        gateway_end, loop.create_unix_connection(SchedulerLink, sock=theirs)
    )
    started = await link.start
    yield link, forwarding_protocol(link, started.settings)
    transport.close()
    await link.lost.wait()


@asynccontextmanager
async def served(protocol=lambda bound: bound, **settings):
    """Yield a client and a function that connects. Any error on the event loop fails the test.

    `protocol` may return a subclass of the gateway's protocol class, which it is given.
    """
    trouble = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
    async with gateway(**settings) as g, AsyncExitStack() as stack:
        app, limits = g.app, GatewaySettings(**settings)
        http = make_protocol(app.invoke, app.request_ids, limits, app.payloads, app.connections)
        if SERVED["forwarded"]:
            app, http = await stack.enter_async_context(forwarded(app, limits))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            config = uvicorn.Config(
                app,
                http=protocol(http) if SERVED["fast"] else "httptools",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=SERVED["keep_alive_s"],
            )
            server = uvicorn.Server(config)
            running = asyncio.create_task(server.serve(sockets=[listener]))
            await wait_on_loop(lambda: server.started, what="the server to start")
            wires = []

            async def connect():
                wire = Wire(*await asyncio.open_connection(*listener.getsockname()), g.key)
                wires.append(wire)
                return wire

            yield g, connect
            for wire in wires:
                wire.close()
            server.should_exit = True
            await running
    assert trouble == []
