"""One node as the head knows it: its connection, the commands to it, and a mirror of what its runs have printed."""

import time
from collections.abc import Callable
from hashlib import sha256

from msgspec.structs import replace

from aliquot.cluster import messages
from aliquot.cluster.connection import FrameConnection, MessageError
from aliquot.cluster.delivery import Delivery, DeliveryError
from aliquot.cluster.liveness import NodeLiveness
from aliquot.cluster.messages import Code, Command, Hello, Leave, PartTaken, Ping, Pong, Report, Start, Stop
from aliquot.cluster.names import local_place, scheduler_device
from aliquot.cluster.translation import MAX_BODY_BYTES, run_command, size_of
from aliquot.core.model import DeviceSpec, NodeSpec
from aliquot.core.units import MIB
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.base import Launch, OutputListener, PartReceiver, RunRequest, SandboxUsage

ACKNOWLEDGE_BYTES = 4 * MIB  # received, after which no ping is waited for
MAX_KEPT_BYTES = 2048 * MIB  # of commands that a node has not acknowledged, most of them payloads


class RemoteSandbox:
    """A sandbox on another node: its launch until it has started, and the run that it has."""

    __slots__ = ("launch", "lines", "listener", "tenant")

    def __init__(self, launch: Launch) -> None:
        self.launch: Launch | None = launch
        self.tenant = launch.tenant
        self.listener: OutputListener | None = None
        self.lines: list[str] = []  # printed by the current run so far

    def begin_run(self, listener: OutputListener | None) -> None:
        self.listener, self.lines = listener, []

    def printed(self, lines: list[str] | tuple[str, ...]) -> None:
        """Note further lines of the run, and pass them on."""
        self.lines += lines
        if self.listener is not None:
            for line in lines:
                self.listener.printed(line)


class RemoteNode:
    """One process of a node's agent. It receives commands also while it is not connected, and gets them later."""

    def __init__(
        self,
        hello: Hello,
        epoch: int,
        liveness: NodeLiveness,
        on_report: Callable[["RemoteNode", Report | messages.Usage | Pong], None],
        on_alive: Callable[["RemoteNode"], None],
        on_closed: Callable[["RemoteNode", str], None],
    ) -> None:
        self.name = hello.node
        self.instance = hello.instance
        self.version = hello.version
        self.devices = tuple(scheduler_device(hello.node, device) for device in hello.devices)
        self.host_memory_bytes = hello.host_memory_bytes
        self.max_sandbox_bytes = hello.max_sandbox_bytes
        self.bandwidth_bytes_s = hello.bandwidth_bytes_s
        self.liveness = liveness
        self.delivery = Delivery(MAX_KEPT_BYTES)
        self.ready = False  # it has taken its settings, and the scheduler knows it
        self.leaving = False  # it was told to stop
        self.address = ""
        self.enforced: frozenset[str] = frozenset()
        self.missing: tuple[str, ...] = ()
        self.round_trip_s: float | None = None
        self.usage: list[SandboxUsage] = []
        self.device_usage: list[DeviceUsage] = []
        self.sandboxes: dict[int, RemoteSandbox] = {}
        self._epoch = epoch
        self._unacknowledged_bytes = 0
        self._connection: FrameConnection | None = None
        self._on_report = on_report
        self._on_alive = on_alive
        self._on_closed = on_closed

    @property
    def spec(self) -> NodeSpec:
        return NodeSpec(self.name, self.host_memory_bytes, self.bandwidth_bytes_s)

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def device(self, local: str) -> DeviceSpec | None:
        """Return the device that the node calls so."""
        return next((each for each in self.devices if local_place((each.name,))[0] == local), None)

    # --- the connection ---------------------------------------------------------------------------------

    def attach(self, connection: FrameConnection, received: int) -> None:
        """Use a new connection, and send again what the agent has not received. Raises `DeliveryError`."""
        unsent = list(self.delivery.resend(received))
        earlier, self._connection = self._connection, connection
        if earlier is not None:
            earlier.abort("the agent has connected again")
        self.address = connection.peer
        for message in unsent:
            connection.send(message)
        connection.listen(_Reports(self, connection))

    def detach(self, why: str) -> None:
        """End the connection, after what was sent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(why)

    def say_last(self, message: messages.Refused) -> None:
        """Send a message without a number."""
        if self._connection is not None:
            self._connection.send(messages.encode(message))

    def ping(self) -> None:
        """Ask for a sign of life, and acknowledge what was received."""
        self._unacknowledged_bytes = 0
        if self._connection is not None:
            self._connection.send(messages.encode(Ping(time.monotonic(), self.delivery.received, self._epoch)))

    def send(self, command: Command) -> None:
        """Send a command now, or when the agent is connected again."""
        message = messages.encode(command)
        self.delivery.keep(message, time.monotonic())
        if self._connection is not None:
            self._connection.send(message)

    def _received(self, connection: FrameConnection, data: bytes) -> None:
        if connection is not self._connection:
            return
        message = messages.decode_from_agent(data)
        self._unacknowledged_bytes += len(data)
        if self._unacknowledged_bytes > ACKNOWLEDGE_BYTES:
            self.ping()
        if isinstance(message, Pong):
            if message.sent_s:  # otherwise it answers no ping
                self.round_trip_s = time.monotonic() - message.sent_s
            try:
                self.delivery.acknowledge(message.received)
            except DeliveryError as error:
                raise MessageError(str(error)) from error
        elif isinstance(message, messages.UNNUMBERED):
            _check_expected(message)
        else:
            self.delivery.count_received()
        self._on_report(self, message)

    def _closed(self, connection: FrameConnection, why: str) -> None:
        if connection is self._connection:
            self._connection = None
            self._on_closed(self, why)

    def heard(self, connection: FrameConnection) -> None:
        if connection is self._connection:
            self._on_alive(self)

    # --- commands ---------------------------------------------------------------------------------------

    def start_sandbox(self, number: int, launch: Launch) -> None:
        """Start a sandbox. Its code stays here until the sandbox has started, because the agent may ask for it."""
        self.sandboxes[number] = RemoteSandbox(launch)
        digests = tuple(_digest(member.code) for member in launch.members)
        bare = replace(
            launch,
            code="",
            place=local_place(launch.place),
            members=tuple(replace(member, code="") for member in launch.members),
        )
        self.send(Start(number, bare, _digest(launch.code), digests))

    def send_code(self, number: int, digest: str) -> None:
        """Send the code that the agent needs for a sandbox."""
        sandbox = self.sandboxes.get(number)
        if sandbox is None or sandbox.launch is None:
            return  # it was stopped meanwhile
        for code in (sandbox.launch.code, *(member.code for member in sandbox.launch.members)):
            if _digest(code) == digest:
                self.send(Code(digest, code.encode()))
                return

    def run(self, number: int, request: RunRequest) -> bool:
        """Run a request. Return False if it is too large to be sent."""
        sandbox = self.sandboxes.get(number)
        if sandbox is None:
            return True
        sandbox.begin_run(request.listener)
        if size_of(request) > MAX_BODY_BYTES:
            return False
        self.send(run_command(number, request))
        return True

    def stop_sandbox(self, number: int) -> None:
        if self.sandboxes.pop(number, None) is not None:
            self.send(Stop(number))

    def leave(self) -> None:
        """Let an agent that wants to stop go."""
        self.send(Leave())

    def part(self, number: int, data: bytes) -> None:
        """Pass a part of a result on, and tell the agent when its caller has taken it."""
        sandbox = self.sandboxes.get(number)
        if sandbox is None:
            return
        receiver: object = sandbox.listener
        if isinstance(receiver, PartReceiver):
            receiver.part(data, lambda goes_on: self.send(PartTaken(number, goes_on)))
        else:
            self.send(PartTaken(number, goes_on=False))


class _Reports:
    """Passes what one connection receives to the node that it belongs to."""

    def __init__(self, node: RemoteNode, connection: FrameConnection) -> None:
        self._node = node
        self._connection = connection

    def received(self, message: bytes) -> None:
        self._node._received(self._connection, message)  # noqa: SLF001 - a part of the node

    def alive(self) -> None:
        self._node.heard(self._connection)

    def closed(self, why: str) -> None:
        self._node._closed(self._connection, why)  # noqa: SLF001 - a part of the node


def _digest(code: str) -> str:
    return sha256(code.encode()).hexdigest() if code else ""


def _check_expected(message: object) -> None:
    if not isinstance(message, messages.Usage):
        raise MessageError(f"{type(message).__name__} is no message of an agent that is connected")
