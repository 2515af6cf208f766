"""The server of `aliquot up`: builds store, node, service and gateway in one process and runs until a signal."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import structlog
import uvloop
from msgspec import Struct
from msgspec.structs import replace

from aliquot.budgets import MappingBudget
from aliquot.clock import now_ms
from aliquot.descriptors import DescriptorShares, divide_descriptors, raise_descriptor_limit
from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.keys import EphemeralKeys
from aliquot.live.catalogue.secret_cipher import SecretCipher
from aliquot.live.catalogue.secrets import SecretRegistry
from aliquot.live.catalogue.system.packages import system_entities
from aliquot.live.console.serving import ConsoleServer, listen_for_console
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.datasets.settings import with_reserve
from aliquot.live.device.service_cpu import ServiceCpu
from aliquot.live.expressions.workers import ExpressionWorkers
from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.entities.kinds import check_image
from aliquot.live.gateway.http.accepted_connections import AcceptedConnections
from aliquot.live.gateway.http.connections import Connections
from aliquot.live.gateway.http.listeners import listen, url_of
from aliquot.live.gateway.http.server import HttpServer
from aliquot.live.gateway.resources.settings import ServerFacts
from aliquot.live.history.historian_process import HistorianProcess
from aliquot.live.history.services import make_history
from aliquot.live.history.spans.reports import lacking_library, reports_for
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.recent_functions import prepare_recent
from aliquot.live.invocations.recovery import recover_calls
from aliquot.live.invocations.sequences.composer import Composer
from aliquot.live.invocations.service import Service
from aliquot.live.invocations.sessions.records import SessionSettings
from aliquot.live.invocations.sessions.registry import SessionRegistry
from aliquot.live.invocations.workflows.options import WorkflowSettings
from aliquot.live.node.cluster import ClusterHead, MakeCluster
from aliquot.live.node.doctor import lacking
from aliquot.live.node.isolation import IsolationProbe
from aliquot.live.node.kind_packages import lacking_packages
from aliquot.live.node.local import LocalNode
from aliquot.live.node.network.client import NodeNetwork
from aliquot.live.node.sandbox_resources import tag_of
from aliquot.live.node.sandbox_views import SandboxViews
from aliquot.live.objects.registry import ObjectRegistry
from aliquot.live.profile.log import ProfileLog
from aliquot.live.settings import ServerSettings, relay_settings
from aliquot.live.starting import make_head, open_store, start_gateways, uvicorn_config
from aliquot.live.store.data_directory import DataDirectory, write_private
from aliquot.live.store.operator_token import OperatorToken
from aliquot.live.store.pruning import keep_pruned
from aliquot.live.store.sqlite import SqliteStore
from aliquot.live.usage.file import UsageFile
from aliquot.malloc import use_one_heap

if TYPE_CHECKING:
    from aliquot.live.gateway.processes.supervisor import GatewayProcesses

log = structlog.get_logger("aliquot.server")

FIRST_NAMESPACE = "guest"


class Ready(Struct, frozen=True):
    """The facts to print once the server answers."""

    url: str
    namespace: str
    key: str
    pid: int
    first: bool  # the namespace is new and `key` is its own, otherwise the key ends with the server
    missing: tuple[str, ...]  # features that this machine lacks, and the consequences
    recovered: int  # calls that an earlier server had accepted
    datasets: int = 0
    console: str | None = None  # its address, unless it is off
    join_command: str | None = None  # by which another machine joins, if this one is the head of a cluster


class ServerReports(Struct, frozen=True):
    """Functions that the server calls to say what happens."""

    ready: Callable[[Ready], None]
    stopping: Callable[[int], None]  # with the number of calls that run


def serve(
    settings: ServerSettings,
    reports: ServerReports,
    probe: IsolationProbe,
    make_cluster: MakeCluster | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. A SIGINT after that does not wait for calls that run.

    `probe` is a running probe of the machine's isolation, with the data directory of the settings. `make_cluster` makes
    this server the head of a cluster. Raises `InputError` if the settings do not allow a start.
    """
    use_one_heap()
    nodejs = which("node") is not None
    settings = replace(settings, images=tuple(check_image(image, nodejs=nodejs) for image in settings.images))
    shares = divide_descriptors(raise_descriptor_limit())  # sandboxes have limits of their own
    data = DataDirectory(settings.data)
    try:
        with ExitStack() as stack:
            listeners = [stack.enter_context(listener) for listener in listen(settings.host, settings.port)]
            for_console = listen_for_console(settings.console, settings.host, settings.port)
            consoles = [stack.enter_context(listener) for listener in for_console]
            uvloop.run(_serve(settings, shares, data, listeners, consoles, reports, probe, make_cluster))
    finally:
        data.release()


async def _load(catalogue: Catalogue, service: Service, cluster: ClusterHead | None) -> None:
    """Deploy the functions of the store, restore what is known about their run times, and let nodes connect."""
    await catalogue.load()
    await service.estimates.restore()
    if cluster is not None:
        await cluster.start(service.node_events)


async def _serve(
    settings: ServerSettings,
    shares: DescriptorShares,
    data: DataDirectory,
    listeners: list[socket.socket],
    consoles: list[socket.socket],
    reports: ServerReports,
    probe: IsolationProbe,
    make_cluster: MakeCluster | None,
) -> None:
    store = await open_store(settings, data)
    json_checker = JsonChecker()
    services = ServiceCpu(tag_of(data.path))
    fabric = Fabric(
        store,
        with_reserve(settings.fabric, data.path, settings.gateway.disk_reserve_bytes),
        partial(services.place, "storage"),
    )
    connections = AcceptedConnections()
    relay = relay_settings(settings, listeners[0])
    node = LocalNode(
        data.path,
        settings.devices,
        isolation_probe=probe,
        result_bytes=settings.gateway.payload_bytes,
        json_checker=json_checker,
        driver_options=settings.devices_asked,
        shared_buffers_bytes=settings.host_memory_bytes // 8,
        replies_bytes=settings.gateway.replies_bytes,
        descriptors=shares,
        views=SandboxViews(fabric.readers, fabric.volume_mounts),
        environment_limits=settings.gateway.environments,
        python=settings.python,
        network=NodeNetwork(relay, connections.put, partial(services.place, "relay")),
    )
    cluster = make_head(make_cluster, settings, node, store, data, relay, connections)
    url = url_of(listeners[0], tls=settings.tls is not None)
    keys = EphemeralKeys()
    service = Service(
        settings.policy,
        node if cluster is None else cluster.node,
        store,
        host_memory_bytes=settings.host_memory_bytes,
        max_sandbox_bytes=settings.max_sandbox_bytes,
        fabric=fabric,
        keys=keys,
        api_host=url,
        images=settings.images,
        open_usage_file=lambda: UsageFile(data.usage, settings.usage_bytes),
        profiles=ProfileLog(data.profile, settings.usage_bytes),
        data=data.path,
        secrets=SecretRegistry(store, SecretCipher(data.secrets_key), settings.gateway.secrets_per_namespace),
        result_cache_bytes=settings.result_cache_bytes,
        objects=ObjectRegistry(
            store,
            data.objects,
            object_bytes=settings.gateway.object_bytes,
            namespace_bytes=settings.gateway.objects_per_namespace_bytes,
        ),
    )
    catalogue = Catalogue(store, service, keys, settings.gateway.entities_per_namespace)
    metrics = Metrics()
    open_connections = Connections(min(settings.gateway.connections or shares.connections, shares.connections))
    payloads = MappingBudget("payloads", settings.gateway.bodies_bytes, shares.request_bodies)
    composer = Composer(
        service,
        store,
        catalogue.resolve,
        max_components=settings.gateway.sequence_length,
        payloads=payloads.bytes,
        count=metrics.count,
        workflows=WorkflowSettings(
            settings.gateway.executions_per_namespace,
            settings.gateway.workflow_tasks,
            ExpressionWorkers(partial(services.place, "expressions")),
        ),
    )
    operator_token = OperatorToken.load(data.operator_token)
    try:
        await service.start()
        await _load(catalogue, service, cluster)
        for entity in system_entities():
            catalogue.install(entity)
        sessions = SessionRegistry(
            store, composer, SessionSettings(settings.session_idle_s, settings.gateway.sessions_per_namespace)
        )
        await sessions.load(catalogue.namespace)
        recovered = await recover_calls(composer, store, catalogue) + await composer.workflows.executions.start()
        name, key, first = await _first_key(catalogue)
        gateway_settings = replace(
            settings.gateway.with_memory(settings.max_sandbox_bytes),
            api_host=url,
            nodejs=which("node") is not None,
            images=settings.images,
            loopback=ip_address(listeners[0].getsockname()[0]).is_loopback,
        )
        app = Gateway(
            composer,
            catalogue,
            store,
            gateway_settings,
            operator_token,
            sessions=sessions,
            json_checker=json_checker,
            fabric=fabric,
            secrets=service.secrets,
            buffers=node.buffers,
            metrics=metrics,
            payloads=payloads,
            connections=open_connections,
            history=make_history(
                store, data.path, partial(services.place, "historian"), reports_for(settings.trace_sample, os.environ)
            ),
            counters=service.counters,
            trials=service.trials,
            objects=service.objects,
            forecaster=service.forecaster,
            facts=ServerFacts(settings.policy, settings.retention, data.path, settings.gateways),
            nodes=None if cluster is None else cluster.administration,
        )
        console = _make_console(settings, consoles, app, catalogue, store, operator_token)
        # In a thread, because the kernel takes 8 to 15 ms to move a process.
        placing = asyncio.create_task(asyncio.to_thread(services.place_server, usable=node.isolation.cgroups))
        gateways = await start_gateways(settings, app, gateway_settings, listeners, placing)
        chores: list[asyncio.Task[Any]] = [
            placing,
            asyncio.create_task(keep_pruned(store, settings.retention, lambda: _weights_of(catalogue))),
            asyncio.create_task(sessions.keep()),
            asyncio.create_task(service.sweep_objects(catalogue)),
            asyncio.create_task(prepare_recent(service, store, catalogue, now_ms=now_ms())),
        ]

        def started() -> None:
            ready = Ready(
                *(url, name, key, os.getpid(), first),
                missing=_missing_features(settings, node, data.path, nodejs=gateway_settings.nodejs),
                recovered=recovered,
                datasets=len(fabric.datasets.all()),
                console=None if console is None else console.url,
                join_command=None if cluster is None else cluster.join_command,
            )
            public = {"url": url, "namespace": name, "key": key, "pid": ready.pid, "console": ready.console}
            data.publish(public | {"operator": operator_token.text})
            operator_token.on_rotated(lambda token: data.publish(public | {"operator": token}))
            reports.ready(ready)  # before the ready file, because its readers expect the output
            if settings.ready_file is not None:
                write_private(settings.ready_file, json.dumps(public))

        server = HttpServer(
            *(uvicorn_config(settings, app, gateway_settings), connections, started),
            on_stopping=lambda: reports.stopping(service.running_calls()),
            gateways=gateways,
        )
        async with _beside(app, console):
            await server.serve(sockets=listeners)
        for chore in chores:
            chore.cancel()
        await _drain(service, composer, settings.grace_s, server.forced)
        await sessions.close()
        await _close_processes(gateways, app.historian)
    finally:
        await _stop(composer, cluster, service, services, store)


async def _stop(
    composer: Composer, cluster: ClusterHead | None, service: Service, services: ServiceCpu, store: SqliteStore
) -> None:
    """Stop everything that runs beside the gateway."""
    await composer.workflows.expressions.stop()
    if cluster is not None:
        await cluster.stop()
    await service.stop()
    services.close()
    await store.close()


@asynccontextmanager
async def _beside(app: Gateway, console: ConsoleServer | None) -> AsyncIterator[None]:
    """Run alarms and the console while the gateway answers. The first question starts the historian, or its job."""
    await app.alarms.start()
    app.historian.stay()
    if console is not None:
        await console.start()
    yield
    await app.alarms.stop()
    if console is not None:
        await console.stop()


def _make_console(
    settings: ServerSettings,
    listeners: list[socket.socket],
    gateway: Gateway,
    catalogue: Catalogue,
    store: SqliteStore,
    token: OperatorToken,
) -> ConsoleServer | None:
    if not listeners:
        return None
    tls = None if settings.tls is None else (str(settings.tls.certificate), str(settings.tls.key))
    return ConsoleServer(settings.console, listeners, gateway, catalogue, store, token, tls)


async def _drain(service: Service, composer: Composer, grace_s: float, forced: asyncio.Event) -> None:
    """Let running calls end for a while, or until it is forced to end.

    Executions that do not end stay in the store for the next server.
    """
    composer.workflows.executions.rest()
    draining = asyncio.create_task(service.drain(grace_s))
    ends = asyncio.create_task(forced.wait())
    await asyncio.wait((draining, ends), return_when=asyncio.FIRST_COMPLETED)
    ends.cancel()
    if draining.done():
        draining.result()
    draining.cancel()
    composer.workflows.executions.stop()


def _missing_features(settings: ServerSettings, node: LocalNode, data: Path, *, nodejs: bool) -> tuple[str, ...]:
    """Return a line for each feature that this machine lacks."""
    packages = lacking_packages(data, python=settings.python is None, nodejs=nodejs)
    return (*lacking(node.isolation), *node.unenforced, *packages, *lacking_library(os.environ))


async def _first_key(catalogue: Catalogue) -> tuple[str, str, bool]:
    """Return a namespace with a key for the user who starts the server, and whether both are new."""
    namespaces = [namespace.name for namespace in catalogue.namespaces()]
    if not namespaces:
        return FIRST_NAMESPACE, await catalogue.create_namespace(FIRST_NAMESPACE), True
    name = FIRST_NAMESPACE if FIRST_NAMESPACE in namespaces else namespaces[0]
    return name, catalogue.ephemeral_keys.issue(name), False


async def _close_processes(gateways: "GatewayProcesses | None", historian: HistorianProcess) -> None:
    await historian.stop()  # when the last calls have ended, which it may tell others
    if gateways is not None:
        await gateways.close()


def _weights_of(catalogue: Catalogue) -> dict[str, float]:
    return {namespace.owner: namespace.weight for namespace in catalogue.namespaces()}
