"""Run the forecaster as a process. It is started with the first call, and restarted when it dies."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from aliquot.core.events import DemandForecast, DemandRow
from aliquot.core.units import MIB
from aliquot.learn.demand.calls import TICKS_PER_STEP
from aliquot.learn.settings import LearnSettings
from aliquot.live.forecasting.messages import (
    LENGTH,
    MAX_FRAME_BYTES,
    CallsSeen,
    ForecasterReport,
    frame,
    report_decoder,
)
from aliquot.live.forecasting.models import DemandModels
from aliquot.live.profile.records import SECOND_S, ProfileRow
from aliquot.worker_process import RestartDelay, end_process

_MODULE = "aliquot.live.forecasting.process"
MAX_START_S = 600.0  # until a forecaster has learned from the profiles
MAX_SILENCE_S = 30.0  # after that it hangs and is ended
SILENT_TICKS = 3  # or after so many ticks, if they take longer
MAX_UNSENT_BYTES = MIB  # calls beyond are not sent to a forecaster that does not read

log = structlog.get_logger("aliquot.forecasting")


class ForecasterProcess:
    """Sends calls to the forecaster, and passes its forecasts on. Without it the server goes on without forecasts."""

    def __init__(
        self,
        step_s: float,
        data: Path,
        post: Callable[[DemandForecast], None],
        learning: LearnSettings,
        max_silence_s: float = MAX_SILENCE_S,
    ) -> None:
        """`post` is called with each forecast. `data` has the profiles to learn from first."""
        self._max_silence_s = max(max_silence_s, SILENT_TICKS * step_s / TICKS_PER_STEP)
        self.models = DemandModels(data, step_s, learning)
        self._step_s = step_s
        self._data = data
        self._post = post
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.rows: tuple[DemandRow, ...] = ()  # of the last forecast
        self.reports = 0  # that forecasters have sent

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def status(self) -> dict[str, Any]:
        """Return the last forecast, and the version that made it with its figures since then."""
        rows, told = msgspec.to_builtins(self.rows), msgspec.to_builtins(self.models.told)
        return {"pid": self.pid, "rows": rows, **told}

    def seen(self, rows: Sequence[ProfileRow]) -> None:
        """Tell the forecaster of calls. The first ones start it."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        calls = [
            CallsSeen(*row.key, float(row.t_s), row.at_once) for row in rows if row.calls and row.grain_s == SECOND_S
        ]
        writer = self._writer
        if calls and writer is not None and writer.transport.get_write_buffer_size() < MAX_UNSENT_BYTES:
            writer.write(frame(calls))

    async def stop(self) -> None:
        """Close the connection, which ends the process."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await asyncio.to_thread(self.models.close)

    async def _run(self) -> None:
        delay = RestartDelay()
        while True:
            started_s = time.monotonic()
            try:
                await self._run_once()
            except TimeoutError:
                log.error("the forecaster said nothing for too long and is ended")  # noqa: TRY400 - the text says it
            except (OSError, msgspec.DecodeError) as error:
                log.error("the forecaster failed", error=str(error))  # noqa: TRY400 - the text says it
            self.rows = ()
            lived_s = time.monotonic() - started_s
            delay_s = delay.after(lived_s)
            log.error("the forecaster ended and is restarted", lived_s=round(lived_s, 3), delay_s=delay_s)
            await asyncio.sleep(delay_s)

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair()
        drift = msgspec.json.encode(self.models.drift).decode()
        with theirs:
            fd = theirs.fileno()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, str(fd), str(self._step_s), str(self._data), drift, pass_fds=[fd]
                )
            except BaseException:
                ours.close()
                raise
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            timeout_s = MAX_START_S
            while (report := await asyncio.wait_for(_next(reader), timeout_s)) is not None:
                timeout_s = self._max_silence_s
                self.reports += 1
                self.models.reported(report)
                if report.forecast is not None:
                    self.rows = report.forecast.rows
                    self._post(report.forecast)
        finally:
            self._writer.close()
            self._writer = None
            await end_process(self._process)
            self._process = None


def make_forecaster(
    step_s: float | None, data: Path | None, post: Callable[[DemandForecast], None], learning: LearnSettings
) -> ForecasterProcess | None:
    """Return the forecaster, or None if no policy wants forecasts or there is nothing to learn from."""
    return None if step_s is None or data is None else ForecasterProcess(step_s, data, post, learning)


async def _next(reader: asyncio.StreamReader) -> ForecasterReport | None:
    """Read a report, or return None when the connection is closed."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return report_decoder.decode(await reader.readexactly(min(length, MAX_FRAME_BYTES)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
