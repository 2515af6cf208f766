"""The relay: takes the connections of all sandboxes, checks the operator's rules, and connects them with the outside.

Connections to the platform's API are passed to the server as sockets, so that no bytes of them go through the relay.
"""

import asyncio
import contextlib
import ipaddress
import resource
import socket
from collections.abc import Callable

from aliquot.budgets import Budget, Reservation
from aliquot.live.node.network import machine
from aliquot.live.node.network.connections import RelayedConnection, reset
from aliquot.live.node.network.datagrams import IDLE_TIMEOUT_S, DatagramFlow, open_inside, receive
from aliquot.live.node.network.egress import EgressRules, everything
from aliquot.live.node.network.messages import ApiAddress, FromRelay, RelaySettings
from aliquot.live.node.network.names import DNS_PORT, HostNames
from aliquot.runtime import network
from aliquot.runtime.network import IpAddress, IpNetwork, NetworkGateway, SteeredPort

MAX_SANDBOX_CONNECTIONS = 256
MAX_FLOWS = 64  # of datagrams, for each sandbox
MAX_SANDBOX_LOOKUPS = 8  # of host names at once
MAX_LOOKUPS = 64  # of all sandboxes, as many as there are threads for them
MAX_UNSENT = 256  # connections to the API that the server has not taken yet
_SWEEP_S = 10
_AT_ONCE = 16

# Takes a message, a descriptor, which the receiver closes, and a reservation to hold until it is sent.
Send = Callable[[FromRelay, int | None, Reservation | None], None]


class SandboxNetwork:
    """The network of one sandbox: its gateway, and what it has open."""

    def __init__(self, number: int, inode: int, gateway: NetworkGateway, tenant: str) -> None:
        self.number = number
        self.inode = inode  # of its namespace
        self.gateway = gateway
        self.tenant = tenant  # empty until the cell is used
        self.connections: set[asyncio.Task[None]] = set()
        self.flows: dict[tuple[tuple[str, int], tuple[IpAddress, int]], DatagramFlow] = {}  # the oldest first
        self.lookups = 0


class NetworkRelay:
    """All sandboxes of a node by number."""

    def __init__(self, settings: RelaySettings, send: Send) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        total = min(settings.connections, descriptors // 4)  # each has two, and sandboxes have some
        self._budget = Budget("connections to the outside", "connections", total)
        self._unsent = Budget("connections to the API", "connections", MAX_UNSENT)
        self._lookups = Budget("lookups of host names", "lookups", MAX_LOOKUPS)
        self._rules = EgressRules(settings.policy)
        self._names = HostNames(self._rules)
        self._nameservers = machine.nameservers()
        self._api = settings.api
        self._api_addresses = _api_addresses(settings.api)
        self._routes = self._find_routes()
        self._steered = self._find_steered()
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._sandboxes: dict[int, SandboxNetwork] = {}
        self._namespaces = {machine.namespace_inode()}  # by inode: those of the sandboxes, and the machine's
        self._paused: dict[int, SandboxNetwork] = {}
        self._chores = [self._loop.create_task(self._names.refresh()), self._loop.create_task(self._sweep())]

    def _find_routes(self) -> list[IpNetwork]:
        if not self._rules.is_none:
            return everything(version_6=machine.has_version_6())
        return [ipaddress.ip_network(str(address)) for address in self._api_addresses if not address.is_loopback]

    def _find_steered(self) -> list[SteeredPort]:
        ports = self._rules.steered_ports()
        if self._api is not None:
            ports += [SteeredPort(each, self._api.port) for each in self._api_addresses if each.is_loopback]
        if not self._rules.is_none:
            ports += [SteeredPort(each, DNS_PORT) for each in self._nameservers if each.is_loopback]
        return list(dict.fromkeys(ports))

    # --- sandboxes --------------------------------------------------------------------------------------

    def add(self, number: int, process: int, tenant: str, *, configured: bool = False) -> None:
        """Take over the network of the process with this pidfd, and report whether that worked.

        `configured` says that trusted code, such as an earlier relay, may have configured it. Otherwise it must be new.
        """
        try:
            with network.entered(process):
                inode = machine.namespace_inode()
                # Code that ran before the sandbox might have kept it in the zygote's namespace.
                if inode in self._namespaces or not (configured or network.is_new()):
                    raise OSError(0, "the process has no network namespace of its own")  # noqa: TRY301
                gateway = network.make_gateway(self._routes, self._steered)
        except OSError as error:
            self._send(FromRelay(failed=number, why=error.strerror or str(error)), None, None)
            return
        sandbox = SandboxNetwork(number, inode, gateway, tenant)
        self._sandboxes[number] = sandbox
        self._namespaces.add(inode)
        self._loop.add_reader(gateway.listener.fileno(), self._accept, sandbox)
        self._loop.add_reader(gateway.datagrams.fileno(), self._receive, sandbox)
        self._send(FromRelay(added=number), None, None)

    def assign(self, number: int, tenant: str) -> None:
        """Count further connections of a sandbox for a tenant."""
        if (sandbox := self._sandboxes.get(number)) is not None:
            sandbox.tenant = tenant

    def remove(self, number: int) -> None:
        """Close everything of a sandbox that has ended."""
        sandbox = self._sandboxes.pop(number, None)
        if sandbox is None:
            return
        self._paused.pop(number, None)
        self._namespaces.discard(sandbox.inode)
        for task in sandbox.connections:
            task.cancel()
        for flow in list(sandbox.flows.values()):
            flow.close()
        self._loop.remove_reader(sandbox.gateway.listener.fileno())
        self._loop.remove_reader(sandbox.gateway.datagrams.fileno())
        sandbox.gateway.close()

    def close(self) -> None:
        """Close everything of all sandboxes."""
        for number in list(self._sandboxes):
            self.remove(number)
        for chore in self._chores:
            chore.cancel()

    # --- limits -----------------------------------------------------------------------------------------

    def _has_room(self, sandbox: SandboxNetwork) -> bool:
        held = len(sandbox.connections) + len(sandbox.flows)
        return held < MAX_SANDBOX_CONNECTIONS and self._budget.fits(sandbox.tenant, 1)

    def _pause(self, sandbox: SandboxNetwork) -> None:
        """Leave further connections of a sandbox to the kernel, whose queue is short, until there is room again."""
        self._paused[sandbox.number] = sandbox
        self._loop.remove_reader(sandbox.gateway.listener.fileno())

    def _resume(self) -> None:
        for sandbox in list(self._paused.values()):
            if self._has_room(sandbox):
                del self._paused[sandbox.number]
                self._loop.add_reader(sandbox.gateway.listener.fileno(), self._accept, sandbox)

    # --- connections ------------------------------------------------------------------------------------

    def _accept(self, sandbox: SandboxNetwork) -> None:
        """Take one connection. The event loop then turns to the next sandbox, so that none is kept waiting."""
        if not self._has_room(sandbox):
            self._pause(sandbox)
            return
        try:
            connection, _ = sandbox.gateway.listener.accept()
        except OSError:
            return
        host, port = network.destination(connection)
        address = ipaddress.ip_address(host)
        if self._is_api(address, port):
            self._pass_to_api(sandbox, connection)
        elif self._allows(address, port) or self._is_nameserver(address, port):
            self._keep(sandbox, self._loop.create_task(RelayedConnection(connection).run(address, port)))
        else:
            reset(connection)

    def _pass_to_api(self, sandbox: SandboxNetwork, connection: socket.socket) -> None:
        """Send a connection to the server. A server that stands still must not fill this process with one tenant's."""
        if not self._unsent.fits(sandbox.tenant, 1):
            reset(connection)
            return
        reserved = Reservation(self._unsent, sandbox.tenant, 1)
        self._send(FromRelay(api=sandbox.number), connection.detach(), reserved)

    def _keep(self, sandbox: SandboxNetwork, task: asyncio.Task[None]) -> None:
        sandbox.connections.add(task)
        tenant = sandbox.tenant
        self._budget.take(tenant, 1)

        def ended(task: asyncio.Task[None]) -> None:
            sandbox.connections.discard(task)
            self._budget.give_back(tenant, 1)
            self._resume()

        task.add_done_callback(ended)

    def _is_api(self, address: IpAddress, port: int) -> bool:
        api = self._api
        if api is None or port != api.port:
            return False
        return address in self._api_addresses or (
            api.any_address and not address.is_loopback and machine.is_own(address)
        )

    def _allows(self, address: IpAddress, port: int) -> bool:
        return self._rules.allows(address, port, self._names.of(address), own=machine.is_own(address))

    def _is_nameserver(self, address: IpAddress, port: int) -> bool:
        return self._rules.is_open and port == DNS_PORT and address in self._nameservers

    # --- datagrams --------------------------------------------------------------------------------------

    def _receive(self, sandbox: SandboxNetwork) -> None:
        for _ in range(_AT_ONCE):
            datagram = receive(sandbox.gateway.datagrams)
            if datagram is None:
                return
            data, source, (address, port) = datagram
            if self._allows(address, port) or self._is_nameserver(address, port):
                self._forward(sandbox, data, source, (address, port))
            elif port == DNS_PORT and address in self._nameservers:
                self._start_answer(sandbox, data, source, (address, port))

    def _forward(
        self, sandbox: SandboxNetwork, data: bytes, source: tuple[str, int], target: tuple[IpAddress, int]
    ) -> None:
        key = source, target
        flow = sandbox.flows.get(key)
        if flow is None:
            if len(sandbox.flows) >= MAX_FLOWS:
                min(sandbox.flows.values(), key=lambda each: each.used_s).close()
            if not self._has_room(sandbox):
                return

            tenant = sandbox.tenant

            def ended() -> None:
                del sandbox.flows[key]
                self._budget.give_back(tenant, 1)

            try:
                flow = DatagramFlow(open_inside(sandbox.gateway, target, source), target, ended)
            except OSError:
                return
            sandbox.flows[key] = flow
            self._budget.take(tenant, 1)
        flow.send(data)

    def _start_answer(
        self, sandbox: SandboxNetwork, query: bytes, source: tuple[str, int], target: tuple[IpAddress, int]
    ) -> None:
        tenant = sandbox.tenant
        if self._has_room(sandbox) and sandbox.lookups < MAX_SANDBOX_LOOKUPS and self._lookups.fits(tenant, 1):
            sandbox.lookups += 1
            reserved = Reservation(self._lookups, tenant, 1)
            self._keep(sandbox, self._loop.create_task(self._answer(sandbox, query, source, target, reserved)))

    async def _answer(
        self,
        sandbox: SandboxNetwork,
        query: bytes,
        source: tuple[str, int],
        target: tuple[IpAddress, int],
        _reserved: Reservation,
    ) -> None:
        """Answer a query. The reservation is held until then."""
        try:
            reply = await self._names.answer(query)
            # Not connected: further queries from the same port must still arrive at the gateway's socket.
            with contextlib.suppress(OSError), open_inside(sandbox.gateway, target) as sock:
                sock.sendto(reply, (str(network.plain(source[0])), source[1]))
        finally:
            sandbox.lookups -= 1

    async def _sweep(self) -> None:
        """Close flows that have not been used for a while."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            before = self._loop.time() - IDLE_TIMEOUT_S
            for sandbox in list(self._sandboxes.values()):
                for flow in [flow for flow in sandbox.flows.values() if flow.used_s < before]:
                    flow.close()
            self._resume()


def _api_addresses(api: ApiAddress | None) -> frozenset[IpAddress]:
    """Return the addresses at which functions find the API. `localhost` may be either loopback address."""
    if api is None:
        return frozenset()
    address = network.plain(api.host)
    both = ("127.0.0.1", "::1") if address.is_loopback else ()
    return frozenset((address, *map(ipaddress.ip_address, both)))
