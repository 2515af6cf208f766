"""Counts of what the platform did, for its metrics, and times that are measured only while somebody asks for them."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

from aliquot.core.commands import Command, LoadMemory, Start, StopSandbox, UnloadMemory
from aliquot.core.places import Place
from aliquot.core.pool import Pool
from aliquot.histogram import SHORT_BOUNDS_S, LatencyHistogram

TICK_S = 1.0
MAX_QUIET_S = 300.0  # after the last page of metrics, measuring ends
LOST = "lost"
_OTHER = "other"
_CAUSES = (  # by the beginning of the reason, which is for people
    ("keep-alive", "keepalive"),
    ("its forecast has lapsed", "forecast"),
    ("it was started ahead", "memory"),
    ("its pool slot is needed", "slots"),
    ("the host's memory is needed", "host_memory"),
    ("its function may have no more", "instances"),
    ("invocation ", "call"),
    ("node ", "node"),
)


class PlatformCounters:
    """Counts since the server started."""

    def __init__(self, pool: Pool, measure_next_step: Callable[[LatencyHistogram], None]) -> None:
        self._pool = pool
        self.monitor = LoopMonitor(measure_next_step)
        self.dispatches: defaultdict[tuple[Place, Start], int] = defaultdict(int)
        self.stops: defaultdict[str, int] = defaultdict(int)  # of sandboxes, by cause
        self.swapped_out_bytes = 0
        self.swapped_in_bytes = 0

    @property
    def steps(self) -> LatencyHistogram:
        """The durations of steps of the scheduler."""
        return self.monitor.steps

    @property
    def lag(self) -> LatencyHistogram:
        """The times by which the event loop was late."""
        return self.monitor.lag

    def count(self, performers: dict[type[Command], Callable[..., None]]) -> None:
        """Count the commands of these kinds before they are performed."""
        for kind, note in ((StopSandbox, self.stopped), (UnloadMemory, self.unloaded), (LoadMemory, self.loaded)):
            performers[kind] = _after(note, performers[kind])

    def stopped(self, command: StopSandbox) -> None:
        """Count a sandbox that the scheduler stops."""
        self.stops[cause_of(command.reason)] += 1

    def ended(self) -> dict[str, int]:
        """Return the number of sandboxes that have ended, by cause. Those that nobody stopped are lost."""
        lost = self._pool.started - len(self._pool.sandboxes) - sum(self.stops.values())
        return {**self.stops, LOST: max(0, lost)}

    def unloaded(self, command: UnloadMemory) -> None:
        """Count the bytes that leave the devices of a sandbox."""
        self.swapped_out_bytes += self._bytes_of(command.sandbox)

    def loaded(self, command: LoadMemory) -> None:
        """Count the bytes that come back to them."""
        self.swapped_in_bytes += self._bytes_of(command.sandbox)

    def _bytes_of(self, number: int) -> int:
        sandbox = self._pool.sandboxes.get(number)
        return 0 if sandbox is None else sandbox.bytes * len(sandbox.devices)


def _after(note: Callable[..., None], perform: Callable[..., None]) -> Callable[..., None]:
    def both(command: Command) -> None:
        note(command)
        perform(command)

    return both


def cause_of(reason: str) -> str:
    """Return the word for the reason of a stop. Reasons have names and durations, which labels must not."""
    return next((word for begin, word in _CAUSES if reason.startswith(begin)), _OTHER)


class LoopMonitor:
    """Measures the lag of the event loop, and one step of the scheduler a second, while metrics are read."""

    def __init__(self, measure_next_step: Callable[[LatencyHistogram], None]) -> None:
        self.lag = LatencyHistogram(SHORT_BOUNDS_S)
        self.steps = LatencyHistogram(SHORT_BOUNDS_S)
        self._measure_next_step = measure_next_step
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = self._until_s = 0.0

    def wake(self) -> None:
        """Measure from now on, for some minutes."""
        loop = asyncio.get_running_loop()
        self._until_s = loop.time() + MAX_QUIET_S
        if self._timer is None:
            self._set(loop)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = loop.time() + TICK_S
        self._timer = loop.call_at(self._due_s, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lag.observe(max(0.0, loop.time() - self._due_s))
        self._measure_next_step(self.steps)
        self._timer = None
        if loop.time() < self._until_s:
            self._set(loop)
