"""Processes that serve the server for as long as it runs: the delay before a restart, and their end."""

import asyncio
from contextlib import suppress

STOP_TIMEOUT_S = 5
STABLE_S = 10  # a process that ran so long is restarted without a delay
MIN_RESTART_DELAY_S, MAX_RESTART_DELAY_S = 0.25, 10.0


class RestartDelay:
    """Computes the time to wait before a process is started again. It doubles while the process ends soon."""

    def __init__(self) -> None:
        self._delay_s = 0.0

    def after(self, lived_s: float) -> float:
        """Return the delay after a process that has lived for this long."""
        if lived_s >= STABLE_S:
            self._delay_s = 0.0
        else:
            self._delay_s = min(MAX_RESTART_DELAY_S, max(MIN_RESTART_DELAY_S, 2 * self._delay_s))
        return self._delay_s


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process whose connection was closed, and kill it if it does not end in time."""
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except (TimeoutError, asyncio.CancelledError):
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
