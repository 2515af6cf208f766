"""Profiles applications: looks at the sandboxes at work every 10 ms, and makes a row of each by second and minute.

The profiler is a timer on the event loop. It sleeps while nothing runs. Its looks take at most 1 % of a core: after one
that took long, the next comes later. So its cost is bounded, however many sandboxes there are.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from aliquot.core.lifecycle import BUSY
from aliquot.core.records import Sandbox
from aliquot.core.scheduler import Scheduler
from aliquot.live.profile.application import START, ApplicationSums, DeviceReading, ProfiledSandbox
from aliquot.live.profile.records import MINUTE_S, ProfileRow, merged

LOOK_INTERVAL_S = 0.01
LOOKS_PER_STATE = 10  # faults and memory of processes are read every 100 ms
MAX_LOAD = 0.01  # of a core

ApplicationKey = tuple[str, str]  # tenant and function
OnRows = Callable[[Sequence[ProfileRow]], None]


class Profiler:
    """Looks at sandboxes and passes rows on: those of a second each second, and those of a minute each minute."""

    def __init__(
        self,
        scheduler: Scheduler,
        pid_of: Callable[[int], int | None],
        device_of: Callable[[int], DeviceReading | None],
        on_rows: OnRows,
    ) -> None:
        """`pid_of` and `device_of` are called with the number of a sandbox."""
        self._pool = scheduler.pool
        self._pid_of = pid_of
        self._device_of = device_of
        self._on_rows = on_rows
        self._sandboxes: dict[int, ProfiledSandbox] = {}
        self._sums: dict[ApplicationKey, ApplicationSums] = {}
        self._minute: dict[ApplicationKey, list[ProfileRow]] = {}
        self._minute_s = self._window_s = 0  # their begin, since the epoch
        self._window_began_s = 0.0
        self._epoch_s = 0.0  # the time of day at which the monotonic clock was 0
        self._looks = 0
        self._awake = False
        self._timer: asyncio.TimerHandle | None = None
        self.spent_s = self.awake_s = 0.0  # of the process's time, and of the clock's
        self._began_s = time.monotonic()

    def wake(self) -> None:
        """Begin to look, because something is about to run."""
        if not self._awake:
            self._awake = True
            now_s = time.monotonic()
            self._epoch_s = time.time() - now_s
            self._begin_window(now_s)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Pass on what is there, and look no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._awake:
            self.look(time.monotonic())
            self._end_window(time.monotonic())
        self._end_minute()
        self._awake = True  # so that nothing wakes it
        for seen in self._sandboxes.values():
            seen.close()
        self._sandboxes.clear()

    def close_files(self, sandbox: int) -> None:
        """Close the files about a sandbox that has ended. What it did in this second still counts."""
        seen = self._sandboxes.get(sandbox)
        if seen is not None:
            seen.close()

    def note(self, tenant: str, function: str, operation: str) -> None:
        """Count an operation of a function that runs, for the sequence of its operations."""
        self._sums_of((tenant, function)).note(operation)

    def status(self) -> dict[str, Any]:
        """Return the processor time of all looks, beside the time since the server began."""
        elapsed_s = time.monotonic() - self._began_s
        return {"looks": self._looks, "spent_s": self.spent_s, "awake_s": self.awake_s, "elapsed_s": elapsed_s}

    # --- time -------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        began_s, cpu_s = time.monotonic(), time.thread_time()
        active = self.look(began_s)
        if int(began_s + self._epoch_s) > self._window_s or not active:
            self._end_window(began_s)
        took_s = time.thread_time() - cpu_s
        pause_s = max(LOOK_INTERVAL_S - took_s, took_s * (1 / MAX_LOAD - 1))
        self.spent_s += took_s
        self.awake_s += took_s + pause_s
        self._awake = active
        left_s = self._minute_s + MINUTE_S - began_s - self._epoch_s
        self._timer = asyncio.get_running_loop().call_later(
            *((pause_s, self._tick) if active else (max(0.0, left_s), self._end_minute))
        )

    def _begin_window(self, now_s: float) -> None:
        self._window_began_s = now_s
        self._window_s = int(now_s + self._epoch_s)
        minute_s = self._window_s // MINUTE_S * MINUTE_S
        if minute_s != self._minute_s:
            self._end_minute()
            self._minute_s = minute_s

    # --- looks ------------------------------------------------------------------------------------------

    def look(self, now_s: float) -> bool:
        """Look at every sandbox that is at work or was since the last look. Return whether any is."""
        active = False
        state = self._looks % LOOKS_PER_STATE == 0
        self._looks += 1
        for sandbox in self._pool.sandboxes.values():
            seen = self._sandboxes.get(sandbox.id)
            if seen is None:
                seen = self._open(sandbox)
            busy = sandbox.state is BUSY
            active = active or busy or sandbox.invocation is not None  # a start or a load for a call
            if busy or seen.busy or seen.uses != sandbox.uses:
                sums = self._sums_of(sandbox.flow.key)
                seen.look(sums, now_s, self._pid_of, self._device_of(sandbox.id), state=state)
        return active

    def _open(self, sandbox: Sandbox) -> ProfiledSandbox:
        seen = self._sandboxes[sandbox.id] = ProfiledSandbox(sandbox)
        sums = self._sums_of(sandbox.flow.key)
        sums.starts += 1
        sums.note(START)
        return seen

    def _sums_of(self, key: ApplicationKey) -> ApplicationSums:
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = ApplicationSums()
        return sums

    def _end_window(self, now_s: float) -> None:
        """Make a row of each application that did something, and forget sandboxes that have ended."""
        elapsed_s = max(now_s - self._window_began_s, LOOK_INTERVAL_S)
        for number, seen in list(self._sandboxes.items()):
            spec = seen.sandbox.flow.spec
            sums = self._sums.get(seen.sandbox.flow.key)
            if sums is not None:
                sums.request = spec.share if spec.share is not None else 1.0
                sums.memory_limit = spec.memory_bytes if sums.request else spec.host_bytes
                seen.end_window(sums, elapsed_s)
            if number not in self._pool.sandboxes:
                seen.close()
                del self._sandboxes[number]
        rows = [sums.row(key, self._window_s) for key, sums in self._sums.items() if sums.grams or sums.at_once]
        for row in rows:
            self._minute.setdefault(row.key, []).append(row)
        if rows:
            self._on_rows(rows)
        self._begin_window(now_s)

    def _end_minute(self) -> None:
        if self._minute:
            self._on_rows([merged(rows, self._minute_s, MINUTE_S) for rows in self._minute.values()])
        self._minute.clear()
        self._sums.clear()  # so that applications of long ago take no memory
