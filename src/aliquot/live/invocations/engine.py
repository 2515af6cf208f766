"""The engine: collects events, lets the scheduler take a step, and performs its commands.

All events of one turn of the event loop become one step. The first event schedules the step for the end of the turn.
Under load one step serves many calls.
"""

import asyncio
import math
import time
from collections.abc import Callable

import structlog

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.clock import DECIMALS
from aliquot.core.commands import Command, WakeAt
from aliquot.core.errors import EventError
from aliquot.core.events import Event, Woke
from aliquot.histogram import LatencyHistogram
from aliquot.live.invocations.journal.writer import JournalWriter
from aliquot.live.store.base import Store

log = structlog.get_logger("aliquot.engine")


class Engine:
    """Drives the scheduler on the event loop, and writes every step to the journal."""

    def __init__(
        self, settings: PolicySettings, store: Store, performer_of: Callable[[type[Command]], Callable[..., None]]
    ) -> None:
        """`performer_of` returns the function that performs commands of a kind. It is asked once for each."""
        self.scheduler = assemble(settings)
        self._journal = JournalWriter(store, self.scheduler, settings)
        self._performer_of = performer_of
        self._performers: dict[type[Command], Callable[..., None]] = {}
        self._inbox: list[Event] = []
        self._step_due = False  # a step is scheduled
        self._turn_s: float | None = None  # the time of this turn, from its first event to the end of its step
        self._epoch = time.monotonic()
        self._alarm: asyncio.TimerHandle | None = None
        self._awaited: list[asyncio.Future[None]] = []  # done after the next step
        self._take = self._take_step  # or the function that measures it once
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        """Return the seconds on the platform's clock. It never goes back, even if the time of day is changed.

        From the first event of a turn until the commands of its step are performed, this is the time of that event.
        The clock is read once for all calls of a turn.
        """
        return self._turn_s if self._turn_s is not None else round(time.monotonic() - self._epoch, DECIMALS)

    def post(self, event: Event) -> None:
        """Report an event to the scheduler. It takes its step within this turn of the event loop."""
        self._inbox.append(event)
        if not self._step_due:
            self._schedule_step()

    async def stepped(self) -> None:
        """Wait until the scheduler has taken its next step, if one is due."""
        if self._step_due:
            self._awaited.append(self._loop.create_future())
            await self._awaited[-1]

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _schedule_step(self) -> None:
        self._step_due = True
        self._turn_s = self.now()
        self._loop.call_soon(self._step)

    def _step(self) -> None:
        events, self._inbox = self._inbox, []
        self._step_due = False
        now = self._turn_s = self.now()
        try:
            self._take(now, events)
        finally:
            self._turn_s = None
            if self._awaited:
                awaited, self._awaited = self._awaited, []
                for future in awaited:
                    if not future.done():
                        future.set_result(None)

    def _take_step(self, now: float, events: list[Event]) -> None:
        self._journal.before_step()
        try:
            commands = self.scheduler.step(now, events)
        except EventError:  # a fault of the platform; the other events take effect with the next step
            log.exception("the scheduler refused an event")
            commands = []
            self._schedule_step()
        performers = self._performers
        for command in commands:
            if type(command) is WakeAt:
                self._wake_at(command.at)
                continue
            try:
                (performers.get(type(command)) or self._find_performer(type(command)))(command)
            except Exception:  # one failing command must not prevent the others
                call = getattr(command, "invocation", None)
                log.exception("a command could not be performed", command=repr(command), activation=call)
        # After the commands, so that sandboxes run meanwhile. The journal reaches the disk later in any case.
        self._journal.after_step(now, events, commands)

    def measure_next_step(self, times: LatencyHistogram) -> None:
        """Measure how long the next step takes. All others cost nothing more."""

        def measured(now: float, events: list[Event]) -> None:
            self._take = self._take_step
            begun_s = time.perf_counter()
            try:
                self._take_step(now, events)
            finally:
                times.observe(time.perf_counter() - begun_s)

        self._take = measured

    def _find_performer(self, kind: type[Command]) -> Callable[..., None]:
        performer = self._performers[kind] = self._performer_of(kind)
        return performer

    def _wake_at(self, at: float) -> None:
        """Report `Woke` when the time has come, never earlier: the scheduler would find nothing to do.

        uvloop runs timers up to a millisecond early, and delays below half a millisecond at once, so the delay is
        rounded up. A timer that is early all the same is set again.
        """
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = max(0.0, at - self.now())
        self._alarm = self._loop.call_later(math.ceil(delay_s * 1000 + 0.5) / 1000, self._wake, at)

    def _wake(self, at: float) -> None:
        if self.now() < at:
            self._wake_at(at)
        else:
            self.post(Woke())
