"""Run the historian beside the server, and ask it. Without it the server goes on, and questions have no answer."""

import asyncio
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from aliquot.live.history.messages import (
    LENGTH,
    MAX_FRAME_BYTES,
    REPORT,
    Answered,
    Asked,
    Question,
    answered_decoder,
    frame,
)
from aliquot.live.history.spans.sending import SpanCounts
from aliquot.live.store.base import Store, StoreError
from aliquot.worker_process import MIN_RESTART_DELAY_S, RestartDelay, end_process

MAX_WAITING = 64
MAX_WAITING_PER_TENANT = 8
TIMEOUT_S = 60.0
_MODULE = "aliquot.live.history.historian.process"

log = structlog.get_logger("aliquot.history")


class HistorianError(Exception):
    """There is no answer now. The text says why."""


class HistorianBusyError(Exception):
    """Too many questions wait. The text says what to do."""


class HistorianJobPeer(Protocol):
    """The server's side of the historian's job."""

    def settings(self) -> bytes:
        """Return the settings for a process that begins."""
        ...

    def take(self, body: bytes) -> None:
        """Take a report."""
        ...

    @property
    def counts(self) -> SpanCounts:
        """The spans since the server started."""
        ...


class HistorianProcess:
    """Starts the historian with the first question, and passes questions and answers."""

    def __init__(
        self,
        store: Store,
        data: Path | None,
        place: Callable[[int], None] = lambda _: None,
        job: HistorianJobPeer | None = None,
    ) -> None:
        """`place` puts a process into its CPU group. Without `data` there is no journal."""
        self._store = store
        self._data = data
        self._place = place
        self.job = job
        self._staying: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._starting: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._restart = RestartDelay()
        self._not_before_s = 0.0  # the next start, after one that has failed
        self._answers: dict[int, asyncio.Future[Answered]] = {}
        self._number = 0
        self._waiting: Counter[str] = Counter()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process, unless it runs. Raises `HistorianError`."""
        if self._writer is not None:
            return
        if self._data is None:
            raise HistorianError("this server keeps no journal")
        if self._starting is None:
            if time.monotonic() < self._not_before_s:
                raise HistorianError("the historian has ended, and is restarted in a moment")
            self._starting = asyncio.create_task(self._start(self._data))
            self._starting.add_done_callback(lambda _: setattr(self, "_starting", None))
        await asyncio.shield(self._starting)

    async def ask(self, question: Question) -> bytes:
        """Return the answer as JSON. Raises `HistorianError` and `HistorianBusyError`."""
        tenant = question.viewer.tenant
        if self._waiting[tenant] >= MAX_WAITING_PER_TENANT or self._waiting.total() >= MAX_WAITING:
            raise HistorianBusyError(f"{self._waiting[tenant]} questions are being answered; ask again when they are")
        self._waiting[tenant] += 1
        try:
            with suppress(StoreError):  # a full disk, from which all that is there can be read
                await self._store.flush()  # so that the last steps are on disk
            await self.start()
            return await self._ask(question)
        except OSError as error:
            raise HistorianError(f"the historian cannot be started: {error.strerror}") from error
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    def stay(self) -> None:
        """Start the process now if it has a job, and again whenever it ends."""
        if self.job is not None:
            self._staying = asyncio.create_task(self._stay())

    async def _stay(self) -> None:
        while True:
            with suppress(HistorianError, OSError):
                await self.start()
            if self._reading is not None:
                await asyncio.wait([self._reading])
            await asyncio.sleep(max(MIN_RESTART_DELAY_S, self._not_before_s - time.monotonic()))

    async def stop(self) -> None:
        """Close the connection, which ends the process."""
        if self._staying is not None:
            self._staying.cancel()
            await self._store.flush()  # so that the job sees the last calls
        if self._starting is not None:
            with suppress(OSError):
                await self._starting
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading

    async def _ask(self, question: Question) -> bytes:
        self._number += 1
        number = self._number
        answered = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            if self._writer is None:
                raise HistorianError("the historian has ended; ask again")
            self._writer.write(frame(Asked(number, question)))
            async with asyncio.timeout(TIMEOUT_S):
                answer = await answered
        except TimeoutError as error:
            self._kill()
            raise HistorianError(f"the historian did not answer in {TIMEOUT_S:g} s, and is restarted") from error
        finally:
            self._answers.pop(number, None)
        if answer.error:
            raise HistorianError(answer.error)
        body: bytes = answer.body
        return body

    async def _start(self, data: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", _MODULE, str(fd), str(data)),
                    b"" if self.job is None else self.job.settings(),
                    pass_fds=[fd],
                )
            except BaseException:
                ours.close()
                raise
        await asyncio.to_thread(self._place, self._process.pid)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader, self._writer, self._process))

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: asyncio.subprocess.Process
    ) -> None:
        began_s = time.monotonic()
        try:
            while (answer := await _next(reader)) is not None:
                if answer.number == REPORT and self.job is not None:
                    self.job.take(answer.body)
                waiting = self._answers.get(answer.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        finally:
            self._writer = None
            writer.close()
            for waiting in self._answers.values():
                if not waiting.done():
                    waiting.set_exception(HistorianError("the historian has ended; ask again"))
            await end_process(process)
            self._process = None
            lived_s = time.monotonic() - began_s
            if process.returncode:
                self._not_before_s = time.monotonic() + self._restart.after(lived_s)
                log.error("the historian ended", lived_s=round(lived_s, 3), code=process.returncode)

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()


async def _next(reader: asyncio.StreamReader) -> Answered | None:
    """Read an answer, or return None when the connection is closed."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return answered_decoder.decode(await reader.readexactly(min(length, MAX_FRAME_BYTES)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
