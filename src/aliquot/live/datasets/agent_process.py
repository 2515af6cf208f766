"""Run the storage agent as a process. It is started when it is first needed, and restarted when it dies."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog

from aliquot.live.datasets.descriptor_channel import DescriptorChannel
from aliquot.storage.frames import frame, from_agent_decoder, next_message
from aliquot.storage.messages import FromAgent, StartAgent, ToAgent
from aliquot.worker_process import RestartDelay, end_process

_MODULE = "aliquot.storage.agent.process"

log = structlog.get_logger("aliquot.fabric")


class AgentListener(Protocol):
    """Talks with the agent through `StorageAgentProcess`. The fabric implements it."""

    def start_message(self) -> StartAgent:
        """Return the first message to a new agent."""
        ...

    def message_received(self, message: FromAgent) -> None:
        """Handle a message from the agent."""
        ...

    def agent_lost(self) -> None:
        """Handle the end of an agent. Its state is lost, and messages sent to it may have had no effect."""
        ...


class StorageAgentProcess:
    """Starts and restarts the agent, and passes messages to and from it."""

    def __init__(self, listener: AgentListener, started: Callable[[int], None], *, enabled: bool = True) -> None:
        """`started` is called with the pid of each agent. If it is not enabled, none is, and messages are dropped."""
        self._listener = listener
        self._started = started
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []  # messages for the agent that is being started
        self.descriptors = DescriptorChannel(self.start)
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = not enabled

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the agent, unless it was started before."""
        if self._task is None and not self._stopping:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, message: ToAgent) -> None:
        """Send a message, in order. If the agent dies, `AgentListener.agent_lost` is called."""
        if self._writer is not None:
            self._writer.write(frame(message))
        elif not self._stopping:
            self._waiting.append(frame(message))
            self.start()

    async def stop(self) -> None:
        """Close the connection, which ends the agent. Kill it if it does not end in time."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self.descriptors.close()

    async def _run(self) -> None:
        delay = RestartDelay()
        while True:
            started_s = time.monotonic()
            try:
                await self._run_once()
            except OSError as error:
                log.error("the storage agent cannot be started", error=str(error))  # noqa: TRY400 - the text says it
            except msgspec.DecodeError as error:
                log.error("the storage agent sent an invalid message", error=str(error))  # noqa: TRY400 - the text says it
            self._waiting.clear()
            self.descriptors.close()
            self._listener.agent_lost()
            lived_s = time.monotonic() - started_s
            delay_s = delay.after(lived_s)
            log.error("the storage agent ended and is restarted", lived_s=round(lived_s, 3), delay_s=delay_s)
            await asyncio.sleep(delay_s)

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair()
        our_descriptors, their_descriptors = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, their_descriptors:
            fds = theirs.fileno(), their_descriptors.fileno()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, *map(str, fds), pass_fds=fds
                )
            except BaseException:
                ours.close()
                our_descriptors.close()
                raise
        self._started(self._process.pid)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(frame(self._listener.start_message()))
            waiting, self._waiting = self._waiting, []
            writer.writelines(waiting)
            self._writer = writer
            self.descriptors.connect(our_descriptors)
            while (message := await next_message(reader, from_agent_decoder)) is not None:
                self._deliver(message)
        finally:
            self._writer = None
            self.descriptors.disconnect()
            our_descriptors.close()
            writer.close()
            await end_process(self._process)
            self._process = None

    def _deliver(self, message: FromAgent) -> None:
        try:
            self._listener.message_received(message)
        except Exception:  # an error with one message must not end the connection
            log.exception("a message of the storage agent could not be handled", message=type(message).__name__)
