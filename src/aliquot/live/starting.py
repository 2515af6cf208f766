"""Build the parts of a server that follow from its settings alone."""

import asyncio
import socket
from typing import TYPE_CHECKING

import uvicorn

from aliquot.core.errors import InputError
from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.http.server import make_config
from aliquot.live.gateway.invocation.protocol import make_protocol
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.node.cluster import ClusterHead, ClusterParts, MakeCluster
from aliquot.live.node.local import LocalNode
from aliquot.live.node.network.messages import RelaySettings
from aliquot.live.settings import ServerSettings
from aliquot.live.store.base import Store, StoreError
from aliquot.live.store.data_directory import DataDirectory
from aliquot.live.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from aliquot.live.gateway.http.accepted_connections import AcceptedConnections
    from aliquot.live.gateway.processes.supervisor import GatewayProcesses


async def open_store(settings: ServerSettings, data: DataDirectory) -> SqliteStore:
    limits = settings.gateway
    try:
        return await SqliteStore.open(
            data.database,
            max_backlog_bytes=limits.unwritten_bytes,
            max_kept_bytes=limits.kept_bytes,
            reserve_bytes=limits.disk_reserve_bytes,
        )
    except StoreError as error:
        raise InputError(f"--data: {error}") from error


def uvicorn_config(settings: ServerSettings, app: Gateway, gateway_settings: GatewaySettings) -> uvicorn.Config:
    parts = (app.invoke, app.request_ids, gateway_settings, app.payloads, app.connections)
    protocol = make_protocol(*parts, responses=app.responses.calls)
    certificate, key = (None, None) if settings.tls is None else (settings.tls.certificate, settings.tls.key)
    return make_config(app, protocol, settings.grace_s, certificate, key, app.connections.backlog)


async def start_gateways(
    settings: ServerSettings,
    app: Gateway,
    gateway_settings: GatewaySettings,
    listeners: list[socket.socket],
    placing: asyncio.Task[None],
) -> "GatewayProcesses | None":
    """Start the gateway processes, or return None if this process is the gateway."""
    if settings.gateways == 1:
        return None
    from aliquot.live.gateway.processes.frames import GatewayStart  # noqa: PLC0415 - most servers have none
    from aliquot.live.gateway.processes.supervisor import GatewayProcesses  # noqa: PLC0415

    await placing  # its children are in its CPU group

    tls = (None, None) if settings.tls is None else (str(settings.tls.certificate), str(settings.tls.key))
    start = GatewayStart(gateway_settings, settings.gateways, settings.grace_s, *tls)
    return GatewayProcesses(app, start, listeners)


def make_head(
    make: MakeCluster | None,
    settings: ServerSettings,
    local: LocalNode,
    store: Store,
    data: DataDirectory,
    relay: RelaySettings,
    connections: "AcceptedConnections",
) -> ClusterHead | None:
    """Return the head of a cluster, or None if this machine stays alone."""
    if make is None:
        return None
    limits = settings.gateway
    return make(
        ClusterParts(
            *(local, store, data.path, relay),
            result_bytes=limits.payload_bytes,
            replies_bytes=limits.replies_bytes,
            environments=limits.environments,
            serve_api=connections.put,
        )
    )
