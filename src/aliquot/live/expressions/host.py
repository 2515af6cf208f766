"""Run the expression host as a process. It is started with the first worker, and restarted when it is found dead."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from aliquot.live.expressions.messages import LENGTH, MAX_REPLY_BYTES, READY, WorkerReply, reply_decoder
from aliquot.worker_process import RestartDelay, end_process

_MODULE = "aliquot.live.expressions.process"

log = structlog.get_logger(__name__)


class WorkerConnection:
    """The connection to one worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.definitions: set[str] = set()  # digests of those that the worker has
        self.sent_bytes = 0

    async def is_ready(self) -> bool:
        """Wait for the worker's first byte, or the end of the worker."""
        with suppress(ConnectionError):
            return await self._reader.read(1) == READY
        return False

    async def ask(self, frame: bytes) -> WorkerReply | None:
        """Send a request, and return the reply, or None if the worker ended before it."""
        self.sent_bytes += len(frame)
        self._writer.write(frame)
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return reply_decoder.decode(await self._reader.readexactly(min(length, 2 * MAX_REPLY_BYTES)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        self._writer.close()


class ExpressionHost:
    """Starts the host, and has it fork workers."""

    def __init__(self, started: Callable[[int], None]) -> None:
        """`started` is called with the pid of each host."""
        self._started = started
        self._lock = asyncio.Lock()
        self._delay = RestartDelay()
        self._started_s = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None

    async def fork(self, *, nice: bool) -> WorkerConnection:
        """Return the connection to a new worker."""
        while True:
            try:
                async with self._lock:
                    connection = await self._fork(nice=nice)
            except OSError as error:
                log.warning("the expression host has ended or cannot be started", error=str(error))
            else:
                try:
                    ready = await connection.is_ready()
                except BaseException:
                    connection.close()
                    raise
                if ready:
                    return connection
                connection.close()
            async with self._lock:
                await self._lost()

    async def _fork(self, *, nice: bool) -> WorkerConnection:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control or await self._start(), [b"n" if nice else b"q"], [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return WorkerConnection(*await asyncio.open_connection(sock=ours))

    async def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._started_s = time.monotonic()
        with theirs:
            fd = theirs.fileno()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, str(fd), pass_fds=[fd]
                )
            except BaseException:
                ours.close()
                raise
        self._control = ours
        self._started(self._process.pid)
        return ours

    async def _lost(self) -> None:
        """End a host that did not fork a worker, and wait before another is started."""
        lived_s = time.monotonic() - self._started_s
        await self.stop()
        await asyncio.sleep(self._delay.after(lived_s))

    async def stop(self) -> None:
        """Close the connection, which ends the host and then its workers."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            await end_process(self._process)
            self._process = None
