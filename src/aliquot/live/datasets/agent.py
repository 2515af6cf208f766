"""The storage agent as the server keeps it: a process, started when it is first needed and again when it dies."""

import asyncio
import socket
import sys
import time
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog

from aliquot.live.datasets.handover import Handover
from aliquot.storage.frames import frame, from_agent_decoder, next_message
from aliquot.storage.messages import FromAgent, StartAgent, ToAgent

_MODULE = "aliquot.storage.agent.process"
_STOP_S = 5
_STABLE_S = 10  # one that has lived so long is followed by another at once
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.25, 10.0

log = structlog.get_logger("aliquot.fabric")


class Peer(Protocol):
    """Who speaks with the agent: the fabric."""

    def greeting(self) -> StartAgent:
        """What each agent must know before anything else."""
        ...

    def heard(self, message: FromAgent) -> None: ...

    def lost(self) -> None:
        """It is gone with all it knew, and what was sent to it may not have been done."""
        ...


class Agent:
    def __init__(self, peer: Peer, *, never: bool = False) -> None:
        """`never`: none is started, whatever is sent."""
        self._peer = peer
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []  # until there is one to send it to
        self.handover = Handover(self.start)
        self._life: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = never

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """If it does not live yet."""
        if self._life is None and not self._stopping:
            self._life = asyncio.get_running_loop().create_task(self._live())

    def send(self, message: ToAgent) -> None:
        """In order. Should it die before it has done it, `lost` is told."""
        if self._writer is not None:
            self._writer.write(frame(message))
        elif not self._stopping:
            self._waiting.append(frame(message))
            self.start()

    async def stop(self) -> None:
        """It ends when the server hangs up; if it does not, it is killed."""
        self._stopping = True
        if self._life is not None:
            self._life.cancel()
            with suppress(asyncio.CancelledError):
                await self._life
        self.handover.close()

    async def _live(self) -> None:
        pause_s = 0.0
        while True:
            begun_s = time.monotonic()
            try:
                await self._one_life()
            except OSError as error:
                log.error("the storage agent cannot be started", error=str(error))  # noqa: TRY400 - the text says it
            except msgspec.DecodeError as error:
                log.error("the storage agent said what is no message", error=str(error))  # noqa: TRY400 - the text says it
            self._waiting.clear()
            self.handover.close()
            self._peer.lost()
            lived_s = time.monotonic() - begun_s
            pause_s = 0.0 if lived_s >= _STABLE_S else min(_MOST_PAUSE_S, max(_LEAST_PAUSE_S, 2 * pause_s))
            log.error("the storage agent ended, another is started", lived_s=round(lived_s, 3), pause_s=pause_s)
            await asyncio.sleep(pause_s)

    async def _one_life(self) -> None:
        ours, theirs = socket.socketpair()
        hands, their_hands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, their_hands:
            fds = theirs.fileno(), their_hands.fileno()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, *map(str, fds), pass_fds=fds
                )
            except BaseException:
                ours.close()
                hands.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(frame(self._peer.greeting()))
            waiting, self._waiting = self._waiting, []
            writer.writelines(waiting)
            self._writer = writer
            self.handover.connect(hands)
            while (said := await next_message(reader, from_agent_decoder)) is not None:
                self._hear(said)
        finally:
            self._writer = None
            self.handover.disconnect()
            hands.close()
            writer.close()
            await self._end(self._process)
            self._process = None

    def _hear(self, message: FromAgent) -> None:
        try:
            self._peer.heard(message)
        except Exception:  # one message's trouble must not take the agent from all others
            log.exception("what the storage agent said could not be used", message=type(message).__name__)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except (TimeoutError, asyncio.CancelledError):
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
