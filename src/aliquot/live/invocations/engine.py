"""The core's turn in the live platform: events gather, the core takes a step, its commands are performed.

Whatever happens within one turn of the event loop becomes one step: the first event asks for a step at the end of the
turn. Under load that makes one step serve many calls.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.clock import DECIMALS
from aliquot.core.commands import Command, WakeAt
from aliquot.core.errors import EventError
from aliquot.core.events import Event, Woke
from aliquot.live.invocations.journal.writer import JournalWriter
from aliquot.live.store.base import Store

log = structlog.get_logger("aliquot.engine")


class Engine:
    def __init__(self, settings: PolicySettings, store: Store, perform: Callable[[Command], None]) -> None:
        self.scheduler = assemble(settings)
        self._journal = JournalWriter(store, self.scheduler, settings)
        self._perform = perform
        self._inbox: list[Event] = []
        self._asked = False  # for a step
        self._epoch = time.monotonic()
        self._alarm: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        """Seconds of the platform's own clock: it never goes back, whatever happens to the time of day."""
        return round(time.monotonic() - self._epoch, DECIMALS)

    def post(self, event: Event) -> None:
        """Tell the core what has happened: it will know before the event loop turns."""
        self._inbox.append(event)
        self._ask()

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        events, self._inbox = self._inbox, []
        self._asked = False
        now = self.now()
        self._journal.before_step()
        try:
            commands = self.scheduler.step(now, events)
        except EventError:  # a fault of this shell; what follows from the other events comes with the next step
            log.exception("the core refused an event")
            commands = []
            self._ask()
        self._journal.after_step(now, events, commands)
        for command in commands:
            if type(command) is WakeAt:
                self._wake_at(command.at)
                continue
            try:
                self._perform(command)
            except Exception:  # one command's trouble must not keep the others from being performed
                log.exception("a command could not be performed", command=repr(command))

    def _wake_at(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_later(max(0.0, at - self.now()), self.post, Woke())
