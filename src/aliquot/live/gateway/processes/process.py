"""A gateway process: `python -m aliquot.live.gateway.processes.process PLACE CONNECTION COUNTS LISTENER...`.

PLACE is its number among them, and the rest are descriptors.

It accepts connections, reads HTTP, passes calls to the scheduler's process, and writes the answers. It ends when the
connection to that process is closed.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
import uvloop
from msgspec.structs import replace

from aliquot.budgets import MappingBudget
from aliquot.descriptors import raise_descriptor_limit
from aliquot.live.gateway.http.accepted_connections import AcceptedConnections
from aliquot.live.gateway.http.asgi import RequestIds
from aliquot.live.gateway.http.server import make_config
from aliquot.live.gateway.invocation.protocol import make_protocol
from aliquot.live.gateway.processes.accepting import Acceptor, ConnectionCounts
from aliquot.live.gateway.processes.forwarding_protocol import ForwardingProtocol
from aliquot.live.gateway.processes.frames import MAX_CALL_BYTES, READY, STOPPED, GatewayStart
from aliquot.live.gateway.processes.scheduler_link import SchedulerLink
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.logs import set_up_logs
from aliquot.malloc import use_one_heap


def forwarding_protocol(link: SchedulerLink, settings: GatewaySettings) -> type[asyncio.Protocol]:
    """Return the protocol class of a gateway process. Bodies up to `MAX_CALL_BYTES` are passed on whole."""
    limits = replace(settings, payload_bytes=min(settings.payload_bytes, MAX_CALL_BYTES))
    bodies = MappingBudget("bodies that arrive", settings.bodies_bytes, 0)
    base = type("BoundForwardingProtocol", (ForwardingProtocol,), {"scheduler": link})
    return make_protocol(link, RequestIds(), limits, bodies, link, base)


class _GatewayServer(uvicorn.Server):
    """A uvicorn server that accepts connections in turn with others. The scheduler's process stops it."""

    def __init__(self, config: uvicorn.Config, link: SchedulerLink, counts: ConnectionCounts, place: int) -> None:
        super().__init__(config)
        self._link = link
        self._counts = counts
        self._place = place
        self._connections = AcceptedConnections()
        self._acceptors: list[Acceptor] = []
        link.on_stop(self._stop)

    def _stop(self, forced: bool) -> None:
        self.should_exit = True
        self.force_exit = self.force_exit or forced

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def _is_my_turn(self) -> bool:
        self._counts.set(self._place, self._link.open_connections + self._connections.starting)
        return not self._counts.others_have_fewer(self._place)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self._connections.serve(self.config, self.server_state)
        self._counts.set(self._place, 0)
        self._acceptors.append(Acceptor(sockets or [], self._is_my_turn, self._connections.put))
        self._link.send(READY)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        self._connections.close()
        await super().shutdown([])


def _config(link: SchedulerLink, start: GatewayStart) -> uvicorn.Config:
    protocol = forwarding_protocol(link, start.settings)
    return make_config(link, protocol, start.grace_s, start.certificate, start.certificate_key)


async def _serve(place: int, connection: socket.socket, counts_fd: int, listeners: list[socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    _, link = await loop.create_unix_connection(SchedulerLink, sock=connection)
    start = await link.start
    server = _GatewayServer(_config(link, start), link, ConnectionCounts(counts_fd, start.count), place)
    serving = asyncio.create_task(server.serve(sockets=listeners))
    ended = asyncio.create_task(link.lost.wait())
    await asyncio.wait((serving, ended), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
        link.send(STOPPED)
        await ended  # calls that still run are answered until then


def main(arguments: list[str]) -> None:
    """Serve until the connection to the scheduler's process is closed."""
    for number in (signal.SIGTERM, signal.SIGINT):  # they are for the whole group of processes
        signal.signal(number, signal.SIG_IGN)
    use_one_heap()
    raise_descriptor_limit()
    set_up_logs()
    place, connection, counts, *listeners = map(int, arguments)
    sockets = [socket.socket(fileno=listener) for listener in listeners]
    uvloop.run(_serve(place, socket.socket(fileno=connection), counts, sockets))
    sys.stdout.flush()
    os._exit(0)  # the kernel closes the connections of clients


if __name__ == "__main__":
    main(sys.argv[1:])
