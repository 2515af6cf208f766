"""The head of a cluster: puts registry, fleet, certificates and the port for nodes together."""

import os
import secrets
import socket
import time
from pathlib import Path
from typing import NamedTuple

import structlog

from aliquot.cluster.certificates import Authority
from aliquot.cluster.head.administration import Administration
from aliquot.cluster.head.fleet import Fleet
from aliquot.cluster.head.node_server import NodeServer
from aliquot.cluster.head.registry import NodeRegistry
from aliquot.cluster.liveness import LivenessLimits
from aliquot.cluster.messages import PORT, AgentSettings
from aliquot.cluster.tokens import SECRET_BYTES, JoinToken
from aliquot.core.errors import InputError
from aliquot.live.gateway.http.listeners import listen
from aliquot.live.node.cluster import ClusterHead, ClusterParts, MembershipListener, NodeAdministration
from aliquot.live.store.data_directory import write_private

log = structlog.get_logger("aliquot.cluster")

FOLDER = "cluster"
TLS, TCP = "tls", "tcp"


class ClusterSettings(NamedTuple):
    """The settings of the head as a cluster."""

    host: str = "0.0.0.0"  # noqa: S104 - nodes are on other machines
    port: int = PORT
    transport: str = TLS
    limits: LivenessLimits = LivenessLimits()


def check_settings(settings: ClusterSettings) -> ClusterSettings:
    """Return the settings. Raises `InputError` for those that make no sense."""
    if settings.transport not in (TLS, TCP):
        raise InputError(f"--node-transport: '{settings.transport}' is not known; it takes tls or tcp")
    limits = settings.limits
    if not 0 < limits.ping_s < limits.suspect_s < limits.lose_s:
        raise InputError(
            f"--node-lost: a node would be suspected after {limits.suspect_s:g} s and lost after {limits.lose_s:g} s; "
            "the second must be more than the first"
        )
    return settings


class Cluster(ClusterHead):
    """The head of a cluster on this machine's devices and those of all nodes that join."""

    def __init__(self, settings: ClusterSettings, parts: ClusterParts) -> None:
        """Blocks for the files of the cluster. Raises `InputError`."""
        folder = parts.data / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._listeners = listen(settings.host, settings.port, "--node-port")[:1]
        self._authority = Authority(folder) if settings.transport == TLS else None
        self._secret = _Secret(folder / "join.secret")
        epoch = _next_epoch(folder / "epoch")
        self._fleet = Fleet(parts.local, settings.limits, epoch)
        self._registry = NodeRegistry(parts.store)
        limits = settings.limits
        relay, environments = parts.relay, parts.environments
        given = AgentSettings(
            relay, parts.result_bytes, parts.replies_bytes, environments, limits.ping_s, limits.lose_s
        )
        self._server = NodeServer(
            self._fleet,
            self._registry,
            self._token,
            self._authority,
            secrets.token_hex(8),
            epoch,
            given,
            parts.serve_api,
        )
        self._administration = Administration(
            self._fleet, self._registry, parts.local, self._token, self._secret.rotate, self._address
        )
        self._fleet.on_ready(self._administration.note_devices)

    @property
    def node(self) -> Fleet:
        return self._fleet

    @property
    def administration(self) -> NodeAdministration:
        return self._administration

    @property
    def join_command(self) -> str:
        transport = "" if self._authority is not None else " --node-transport tcp"
        return f"aliquot node join {self._address()}{transport} --token {self._token().text()}"

    async def start(self, listener: MembershipListener) -> None:
        await self._registry.load()
        self._fleet.tell(listener)
        for record in self._registry.all():
            if record.draining:
                self._fleet.drain(record.name, None)
        self._fleet.expect(self._registry.all())
        await self._server.start(self._listeners[0])

    async def stop(self) -> None:
        await self._server.stop()
        for listener in self._listeners:
            listener.close()

    def _token(self) -> JoinToken:
        return JoinToken(b"" if self._authority is None else self._authority.digest, self._secret.value)

    def _address(self) -> str:
        """Return the address of the port for nodes as other machines probably reach it."""
        host, port = self._listeners[0].getsockname()[:2]
        if host in ("0.0.0.0", "::"):  # noqa: S104 - compared
            host = socket.gethostname()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Secret:
    """The secret of join tokens, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.value = bytes.fromhex(path.read_text())
        except (FileNotFoundError, ValueError):
            self.value = b""
        if len(self.value) != SECRET_BYTES:
            self.rotate()

    def rotate(self) -> None:
        """Make a new secret. Nodes that have joined with TLS are not concerned."""
        self.value = secrets.token_bytes(SECRET_BYTES)
        write_private(self._path, self.value.hex())


def _next_epoch(path: Path) -> int:
    """Return the number of this head, which is greater than that of every head before it on this data folder."""
    try:
        before = int(path.read_text())
    except FileNotFoundError:
        before = 0
    except ValueError:
        log.warning("the epoch in the data folder is damaged; the time takes its place", pid=os.getpid())
        before = int(time.time())
    write_private(path, str(before + 1))
    return before + 1
