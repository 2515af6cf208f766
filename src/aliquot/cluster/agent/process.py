"""The process of a node agent. `aliquot node join` starts it, and again when it dies.

It reads its options as one line of JSON from its standard input.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import structlog
import uvloop

from aliquot.cluster import messages
from aliquot.cluster.agent.agent import NodeAgent
from aliquot.cluster.agent.api_relay import ApiRelay
from aliquot.cluster.agent.code_store import CodeStore
from aliquot.cluster.agent.head_link import EndError, HeadLink
from aliquot.cluster.agent.settings import EPOCH, AgentOptions, Membership, key_files, load_membership
from aliquot.cluster.certificates import agent_context
from aliquot.cluster.messages import AgentSettings, Leaving
from aliquot.core.errors import InputError
from aliquot.descriptors import divide_descriptors, raise_descriptor_limit
from aliquot.live.device.service_cpu import ServiceCpu
from aliquot.live.node.doctor import lacking
from aliquot.live.node.isolation import IsolationProbe
from aliquot.live.node.local import LocalNode
from aliquot.live.node.network.client import NodeNetwork
from aliquot.live.node.sandbox_resources import tag_of
from aliquot.live.store.data_directory import DataDirectory, write_private
from aliquot.logs import set_up_logs
from aliquot.malloc import use_one_heap

log = structlog.get_logger("aliquot.node_agent")

MODULE = "aliquot.cluster.agent.process"
STOPPED, AGAIN, REFUSED, REMOVED = 0, 75, 77, 78  # exit codes


def main() -> int:
    """Run the agent until it is stopped, refused or has to be replaced."""
    set_up_logs()
    use_one_heap()
    options = msgspec.json.decode(sys.stdin.buffer.readline(), type=AgentOptions)
    try:
        data = DataDirectory(Path(options.data))
    except InputError as error:
        log.error("the agent cannot start", reason=str(error))  # noqa: TRY400 - the text says it
        return REFUSED
    try:
        membership = load_membership(data.path)
        if membership is None:
            log.error("this machine has not joined a cluster", data=str(data.path))
            return REFUSED
        with IsolationProbe(data.path) as probe:
            return uvloop.run(_run(options, data.path, membership, probe))
    except InputError as error:
        log.error("the agent cannot start", reason=str(error))  # noqa: TRY400 - the text says it
        return REFUSED
    finally:
        data.release()


async def _run(options: AgentOptions, data: Path, membership: Membership, probe: IsolationProbe) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    context = agent_context(key_files(data)) if membership.head.tls else None
    epoch = _Epoch(key_files(data).folder / EPOCH)
    link = HeadLink(membership, options, context, epoch.highest, epoch.note)
    stopped = loop.create_task(stopping.wait())
    try:
        connecting = loop.create_task(link.first_settings())
        await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            connecting.cancel()
            return STOPPED
        relay = ApiRelay(membership, context)
        try:
            return await _serve(options, data, connecting.result(), link, relay, probe, stopped)
        finally:
            await relay.stop()
    except EndError as error:
        log.warning("the agent ends", reason=str(error))
        return AGAIN if error.again else REMOVED if error.removed else REFUSED
    finally:
        stopped.cancel()
        link.close()


async def _serve(
    options: AgentOptions,
    data: Path,
    settings: AgentSettings,
    link: HeadLink,
    relay: ApiRelay,
    probe: IsolationProbe,
    stopped: "asyncio.Task[bool]",
) -> int:
    """Run the node until it is stopped. Raises `EndError`."""
    services = ServiceCpu(tag_of(data))
    node = _make_node(options, data, settings, relay.put, services, probe)
    left = asyncio.Event()
    agent = NodeAgent(node, CodeStore(data / "code"), link.report, link.tell_usage, left.set)
    loop = asyncio.get_running_loop()
    staying: asyncio.Task[None] | None = None
    try:
        await node.start(agent)
        await loop.run_in_executor(None, partial(services.place_server, usable=node.isolation.cgroups))
        if not node.isolation.network and settings.relay.api is not None:
            await relay.listen(settings.relay.api)
        enforced = tuple(each.name for each in node.devices if node.enforces((each.name,)))
        link.take_commands(agent.handle)
        link.report(messages.Ready(enforced, (*lacking(node.isolation), *node.unenforced)))
        staying = loop.create_task(link.stay())
        await asyncio.wait((staying, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not staying.done():
            await _leave(link, left, staying, options.grace_s)
        if staying.done():
            staying.result()
        return STOPPED
    finally:
        if staying is not None:
            staying.cancel()
        agent.stop()
        await node.stop()
        await loop.run_in_executor(None, services.close)


async def _leave(link: HeadLink, left: asyncio.Event, staying: "asyncio.Task[None]", grace_s: float) -> None:
    """Let calls that run end, and go when the head allows it."""
    link.report(Leaving(grace_s))
    gone = asyncio.create_task(left.wait())
    await asyncio.wait((gone, staying), timeout=grace_s + 1, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()


def _make_node(
    options: AgentOptions,
    data: Path,
    settings: AgentSettings,
    api: Callable[[socket.socket], None],
    services: ServiceCpu,
    probe: IsolationProbe,
) -> LocalNode:
    return LocalNode(
        data,
        options.devices,
        isolation_probe=probe,
        result_bytes=settings.result_bytes,
        driver_options=options.devices_asked,
        shared_buffers_bytes=options.host_memory_bytes // 8,
        replies_bytes=settings.replies_bytes,
        descriptors=divide_descriptors(raise_descriptor_limit()),
        environment_limits=settings.environments,
        python=None if options.python is None else Path(options.python),
        network=NodeNetwork(settings.relay, api, partial(services.place, "relay")),
        beside_gateway=False,
    )


class _Epoch:
    """The highest epoch of a head that this machine has obeyed, on its disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._highest = 0
        with contextlib.suppress(FileNotFoundError, ValueError):
            self._highest = int(path.read_text())

    def highest(self) -> int:
        return self._highest

    def note(self, epoch: int) -> None:
        if epoch > self._highest:
            self._highest = epoch
            write_private(self._path, str(epoch))


if __name__ == "__main__":
    sys.exit(main())
