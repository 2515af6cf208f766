"""The port at which nodes join and connect: greetings, and what a peer must show before anything else.

A peer without a certificate can do nothing but join with the token's secret. One with a certificate is the node that
the certificate was made for, unless that node was removed. Without TLS the secret takes the certificate's place.
"""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable
from typing import Any

import structlog

from aliquot.clock import now_ms
from aliquot.cluster import messages
from aliquot.cluster.certificates import Authority, fingerprint_of, fingerprint_of_der, head_context
from aliquot.cluster.connection import GREETING_TIMEOUT_S, FrameConnection
from aliquot.cluster.head.fleet import AdmissionError, Fleet
from aliquot.cluster.head.registry import NodeRecord, NodeRegistry
from aliquot.cluster.messages import (
    AgentGone,
    AgentSettings,
    Challenge,
    Hello,
    Join,
    Joined,
    OpenRelay,
    Refused,
    RelayOpened,
    Welcome,
)
from aliquot.cluster.names import check_node_name
from aliquot.cluster.piping import PipeEnd
from aliquot.cluster.tokens import JoinToken, node_secret, proves
from aliquot.core.errors import InputError
from aliquot.live.store.base import StoreError
from aliquot.version import __version__

log = structlog.get_logger("aliquot.cluster")

MAX_STRANGERS = 256  # connections of peers that have not shown yet who they are
REMOVED = "this node is not known here, or was removed; join again with a token of `aliquot node token`"


class NodeServer:
    """Accepts the connections of nodes."""

    def __init__(
        self,
        fleet: Fleet,
        registry: NodeRegistry,
        token: Callable[[], JoinToken],
        authority: Authority | None,
        head: str,
        epoch: int,
        settings: AgentSettings,
        serve_api: Callable[[socket.socket], None],
    ) -> None:
        """Without an authority there is no TLS. `serve_api` takes connections to the platform's API."""
        self._fleet = fleet
        self._registry = registry
        self._token = token
        self._authority = authority
        self._head = head
        self._epoch = epoch
        self._settings = settings
        self._serve_api = serve_api
        self._tasks: set[asyncio.Task[None]] = set()
        self._relays: set[asyncio.Transport] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept connections on this socket."""
        context = None if self._authority is None else head_context(self._authority.files)
        timeout: dict[str, Any] = {} if context is None else {"ssl_handshake_timeout": GREETING_TIMEOUT_S}
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=listener, ssl=context, **timeout)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport in list(self._relays):
            transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> FrameConnection:
        return _Stranger(self._greet)

    def _greet(self, connection: FrameConnection) -> None:
        if len(self._tasks) >= MAX_STRANGERS:
            connection.abort("too many peers connect at once")
            return
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: FrameConnection) -> None:
        nonce = secrets.token_bytes(16)
        authority = b"" if self._authority is None else self._authority.pem
        challenge = Challenge(messages.PROTOCOL, __version__, self._head, self._epoch, nonce, authority)
        connection.send(messages.encode(challenge))
        try:
            greeting = messages.decode_from_agent(await connection.next())
            if isinstance(greeting, Join):
                await self._join(connection, greeting, nonce)
            elif isinstance(greeting, Hello):
                await self._admit(connection, greeting, nonce)
            elif isinstance(greeting, OpenRelay):
                await self._relay(connection, greeting, nonce)
            elif isinstance(greeting, AgentGone):
                self._gone(connection, greeting, nonce)
            else:
                connection.abort(f"{type(greeting).__name__} is no greeting")
        except (ConnectionError, TimeoutError):
            connection.abort("the peer did not say who it is")
        except (ValueError, OSError) as error:  # a message that cannot be decoded is a `ValueError`, too
            log.warning("a peer was refused", address=connection.peer, reason=str(error))
            connection.abort(str(error))

    # --- greetings --------------------------------------------------------------------------------------

    async def _join(self, connection: FrameConnection, join: Join, nonce: bytes) -> None:
        try:
            check_node_name(join.node, "--name")
            self._check_secret(join, nonce)
            certificate = b"" if self._authority is None else self._authority.sign_node(join.node, join.request)
            digest = fingerprint_of(certificate) if certificate else ""
            known = self._registry.get(join.node)
            draining = known is not None and known.draining
            own = b"" if certificate else node_secret(self._token().secret, join.node, join.identity)
            await self._registry.join(NodeRecord(join.node, join.identity, digest, now_ms(), own, draining))
        except (InputError, ValueError, StoreError) as error:
            self._refuse(connection, str(error), again=False)
            return
        log.info("a node may connect", node=join.node, address=connection.peer)
        connection.send(messages.encode(Joined(certificate)))
        connection.close()

    def _check_secret(self, join: Join, nonce: bytes) -> None:
        if not proves(join.proof, self._token().secret, nonce, "join", join.node, join.identity):
            raise InputError("--token: its secret is not valid any more; `aliquot node token` prints the present one")

    async def _admit(self, connection: FrameConnection, hello: Hello, nonce: bytes) -> None:
        if not messages.OLDEST_PROTOCOL <= hello.protocol <= messages.PROTOCOL:
            text = (
                f"it speaks protocol {hello.protocol} (version {hello.version}); the head takes "
                f"{messages.OLDEST_PROTOCOL} to {messages.PROTOCOL} (version {__version__})"
            )
            self._refuse(connection, text, again=False)
            return
        if not self._knows(connection, hello, nonce, "hello"):
            self._refuse(connection, REMOVED, again=False)
            return

        def welcome(received: int) -> None:
            connection.send(messages.encode(Welcome(received, self._settings)))

        try:
            self._fleet.admit(hello, connection, welcome)
        except AdmissionError as error:
            self._refuse(connection, str(error), again=error.again)

    async def _relay(self, connection: FrameConnection, relay: OpenRelay, nonce: bytes) -> None:
        """Give the connection to the gateway, as if a function of the head had made it."""
        if not self._knows(connection, relay, nonce, "relay"):
            connection.abort(REMOVED)
            return
        ours, theirs = socket.socketpair()
        self._serve_api(theirs)
        gateway = PipeEnd()
        await asyncio.get_running_loop().create_connection(lambda: gateway, sock=ours)
        remote = PipeEnd()
        transport = connection.transport
        connection.send(messages.encode(RelayOpened()))
        connection.take_over(remote)
        remote.join(gateway)
        self._relays.add(transport)
        gateway.on_closed(lambda: self._relays.discard(transport))

    def _gone(self, connection: FrameConnection, gone: AgentGone, nonce: bytes) -> None:
        """Take an agent for lost whose end was seen on its machine, without waiting for its silence."""
        node = self._fleet.nodes.get(gone.node)
        if self._knows(connection, gone, nonce, "gone") and node is not None and node.instance == gone.instance:
            self._fleet.lose(node, "its agent has ended")
        connection.close()

    def _knows(
        self, connection: FrameConnection, greeting: Hello | OpenRelay | AgentGone, nonce: bytes, purpose: str
    ) -> bool:
        """Return whether the peer is the node that it says it is, and may still connect."""
        record = self._registry.get(greeting.node)
        if record is None or record.identity != greeting.identity:
            return False
        if self._authority is None:
            return bool(record.secret) and proves(
                greeting.proof, record.secret, nonce, purpose, greeting.node, greeting.identity
            )
        tls: Any = connection.transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        return certificate is not None and fingerprint_of_der(certificate) == record.certificate

    @staticmethod
    def _refuse(connection: FrameConnection, reason: str, *, again: bool) -> None:
        log.warning("a node was refused", address=connection.peer, reason=reason)
        with contextlib.suppress(OSError):
            connection.send(messages.encode(Refused(reason, again)))
        connection.close()


class _Stranger(FrameConnection):
    """A connection whose peer has said nothing yet."""

    def __init__(self, greet: Callable[[FrameConnection], None]) -> None:
        super().__init__()
        self._greet = greet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._greet(self)
