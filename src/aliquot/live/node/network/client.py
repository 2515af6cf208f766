"""The server's side of the relay: runs the process, and tells it which sandboxes there are."""

import asyncio
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog

from aliquot.live.node.network.messages import MAX_PACKET_BYTES, FromRelay, RelaySettings, ToRelay
from aliquot.worker_process import RestartDelay, end_process

_MODULE = "aliquot.live.node.network.process"

log = structlog.get_logger("aliquot.network")

NetworkReport = Callable[[str], None]  # gets why a network could not be made, or an empty text
ConnectionHandler = Callable[[socket.socket], None]  # gets the connections of functions to the API, and owns them


class NetworkedProcess(Protocol):
    """The process of a sandbox, by its pidfd while it runs."""

    @property
    def pidfd(self) -> int | None: ...


class SandboxNetworks(Protocol):
    """Gives sandboxes a network of their own. Sandboxes have the numbers of their cells."""

    are_own: bool  # `add` is followed by a report

    def add(self, number: int, process: NetworkedProcess, made: NetworkReport, *, configured: bool = False) -> None:
        """Make the network of a process, and call `made` then.

        The namespace must be new, unless it is `configured`: trusted code has done so, and no other has run in it.
        """

    def assign(self, number: int, tenant: str) -> None:
        """Count the connections of a cell for a tenant."""

    def remove(self, number: int) -> None:
        """End the network of a cell, if it has one."""

    async def stop(self) -> None: ...


class MachineNetwork:
    """Leaves sandboxes in the machine's network."""

    are_own = False

    def add(self, number: int, process: NetworkedProcess, made: NetworkReport, *, configured: bool = False) -> None: ...
    def assign(self, number: int, tenant: str) -> None: ...
    def remove(self, number: int) -> None: ...
    async def stop(self) -> None: ...


class NodeNetwork:
    """The settings of a node's network. Connections of functions to the API are given to `api`."""

    def __init__(
        self,
        settings: RelaySettings | None = None,
        api: ConnectionHandler = socket.socket.close,
        relay_started: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`relay_started` is called with the pid of each relay."""
        self._settings = settings or RelaySettings()
        self._api = api
        self._relay_started = relay_started

    def open(self, *, own: bool, loop: asyncio.AbstractEventLoop) -> SandboxNetworks:
        """Return the networks of sandboxes: their own, or else the machine's."""
        return RelayedNetworks(self._settings, self._api, self._relay_started, loop) if own else MachineNetwork()


class _CellNetwork:
    """The network of one cell, as the server knows it."""

    def __init__(self) -> None:
        self.process: NetworkedProcess | None = None  # until it is forked
        self.tenant = ""
        self.made: NetworkReport | None = None  # until it was called
        self.configured = False  # by a relay, or before


class RelayedNetworks:
    """Networks that lead to the relay. A relay that dies is replaced, and the next one takes over all sandboxes."""

    are_own = True

    def __init__(
        self,
        settings: RelaySettings,
        api: ConnectionHandler,
        started: Callable[[int], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._started = started
        self._pass_to_api = api
        self._loop = loop
        self._cells: dict[int, _CellNetwork] = {}
        self._sock: socket.socket | None = None
        self._unsent: deque[ToRelay] = deque()
        self._decoder = msgspec.json.Decoder(FromRelay)
        self._lost: asyncio.Event = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._task = loop.create_task(self._run())

    @property
    def pid(self) -> int | None:
        """The pid of the relay, if it runs."""
        return self._process.pid if self._process is not None else None

    # --- cells ------------------------------------------------------------------------------------------

    def add(self, number: int, process: NetworkedProcess, made: NetworkReport, *, configured: bool = False) -> None:
        cell = self._cells.setdefault(number, _CellNetwork())
        cell.process, cell.made, cell.configured = process, made, configured
        self._send_cell(number, cell)

    def _send_cell(self, number: int, cell: _CellNetwork) -> None:
        if self._sock is not None:
            self._send(ToRelay(add=number, configured=cell.configured, tenant=cell.tenant))
            cell.configured = True

    def assign(self, number: int, tenant: str) -> None:
        cell = self._cells.setdefault(number, _CellNetwork())
        cell.tenant = tenant
        if cell.process is not None:
            self._send(ToRelay(assign=number, tenant=tenant))

    def remove(self, number: int) -> None:
        cell = self._cells.pop(number, None)
        if cell is not None and cell.process is not None:
            self._send(ToRelay(remove=number))

    # --- messages ---------------------------------------------------------------------------------------

    def _send(self, message: ToRelay) -> None:
        if self._sock is not None:  # otherwise the next relay is told about all cells
            self._unsent.append(message)
            if len(self._unsent) == 1:
                self._flush()

    def _flush(self) -> None:
        sock = self._sock
        while sock is not None and self._unsent:
            message = self._unsent[0]
            try:
                if message.add is None:
                    sock.send(msgspec.json.encode(message))
                elif (pidfd := self._pidfd(message.add)) is not None:
                    socket.send_fds(sock, [msgspec.json.encode(message)], [pidfd])
            except BlockingIOError:
                self._loop.add_writer(sock.fileno(), self._flush)
                return
            except OSError:
                return  # the relay has ended; reading will find it out
            self._unsent.popleft()
        if sock is not None:
            self._loop.remove_writer(sock.fileno())

    def _pidfd(self, number: int) -> int | None:
        """Return the pidfd of a cell, or None if its process has ended meanwhile."""
        cell = self._cells.get(number)
        return cell.process.pidfd if cell is not None and cell.process is not None else None

    def _readable(self, sock: socket.socket) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(sock, MAX_PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._lost.set()
            return
        try:
            message = self._decoder.decode(data)
        except msgspec.DecodeError as error:
            log.error("the relay sent an invalid message", error=str(error))  # noqa: TRY400 - the text says it
            message = FromRelay()
            self._lost.set()
        if message.api is not None and fds:
            self._pass_to_api(socket.socket(fileno=fds.pop()))
        elif message.added is not None:
            self._settle(message.added, "")
        elif message.failed is not None:
            self._settle(message.failed, message.why)
        for fd in fds:
            os.close(fd)

    def _settle(self, number: int, why: str) -> None:
        """Report the outcome of an `add`, unless an earlier relay has done so."""
        cell = self._cells.get(number)
        if cell is not None and cell.made is not None:
            made, cell.made = cell.made, None
            made(why)
        elif why:
            log.warning("a sandbox has lost its network", cell=number, error=why)

    # --- the process ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        delay = RestartDelay()
        while True:
            started_s = time.monotonic()
            try:
                await self._run_once()
            except OSError as error:
                log.error("the relay cannot be started", error=str(error))  # noqa: TRY400 - the text says it
            lived_s = time.monotonic() - started_s
            delay_s = delay.after(lived_s)
            log.error("the relay ended and is restarted", lived_s=round(lived_s, 3), delay_s=delay_s)
            await asyncio.sleep(delay_s)

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, str(theirs.fileno()), pass_fds=[theirs.fileno()]
                )
            self._started(self._process.pid)
            self._lost.clear()
            self._introduce(ours)
            await self._lost.wait()
        finally:
            if self._sock is not None:
                self._loop.remove_reader(ours.fileno())
                self._loop.remove_writer(ours.fileno())
                self._sock = None
            ours.close()
            self._unsent.clear()
            if self._process is not None:
                await end_process(self._process)
                self._process = None

    def _introduce(self, sock: socket.socket) -> None:
        """Tell a new relay its settings and all cells."""
        self._sock = sock
        self._loop.add_reader(sock.fileno(), self._readable, sock)
        self._send(ToRelay(start=self._settings))
        for number, cell in self._cells.items():
            if cell.process is not None:
                self._send_cell(number, cell)

    async def stop(self) -> None:
        """End the relay, and the networks with it."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
