"""Lead functions on this node to the platform's API on the head, at the address that they know from the head."""

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import structlog

from aliquot.cluster import messages
from aliquot.cluster.agent.dialling import answer, dial
from aliquot.cluster.agent.settings import Membership
from aliquot.cluster.messages import OpenRelay
from aliquot.cluster.piping import PipeEnd
from aliquot.cluster.tokens import proof_of
from aliquot.live.node.network.messages import ApiAddress

log = structlog.get_logger("aliquot.node_agent")

MAX_CONNECTIONS = 1024


class ApiRelay:
    """Passes each connection of a function to the head, over a connection of its own."""

    def __init__(self, membership: Membership, context: ssl.SSLContext | None) -> None:
        self._membership = membership
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self._pipes: set[PipeEnd] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, api: ApiAddress) -> None:
        """Listen on loopback for functions without a network of their own."""
        loop = asyncio.get_running_loop()

        def accepted() -> PipeEnd:
            end = PipeEnd()
            self._lead(end)
            return end

        try:
            self._server = await loop.create_server(accepted, "127.0.0.1", api.port)
        except OSError as error:  # the head is on this machine, or functions cannot call back
            log.warning("functions here reach what listens on the API's port", port=api.port, reason=str(error))

    def put(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted in the network of a sandbox."""
        if len(self._pipes) + len(self._tasks) >= MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._spawn(self._serve(connection))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pipe in list(self._pipes):
            pipe.shut()

    async def _serve(self, connection: socket.socket) -> None:
        end = PipeEnd()
        await asyncio.get_running_loop().create_connection(lambda: end, sock=connection)
        await self._connect(end)

    def _lead(self, end: PipeEnd) -> None:
        self._spawn(self._connect(end))

    async def _connect(self, end: PipeEnd) -> None:
        own = self._membership
        try:
            connection, challenge = await dial(own.head, self._context)
            proof = proof_of(own.secret, challenge.nonce, "relay", own.node, own.identity) if own.secret else b""
            connection.send(messages.encode(OpenRelay(own.node, own.identity, proof)))
            await answer(connection)
        except (OSError, TimeoutError) as error:
            log.warning("a function cannot reach the platform", error=str(error))
            end.shut()
            return
        remote = PipeEnd()
        connection.take_over(remote)
        self._pipes.add(end)
        end.on_closed(lambda: self._pipes.discard(end))
        end.join(remote)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        with suppress(asyncio.CancelledError):
            if (error := task.exception()) is not None:
                log.warning("a connection of a function to the platform was lost", error=str(error))
