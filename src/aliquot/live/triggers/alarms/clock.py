"""The clock: fires triggers when their alarms are due.

Alarms outlive a crash. What was due while no server ran is not made up for, except a single date: that fires as the
server starts. How often one has fired is written after the firing, so that a crash between the two repeats a firing
rather than losing it; it is written only where it decides anything. An alarm ends with the trigger it was made for.

The wall clock may jump. Ahead: what was jumped over fires once. Back by more than a minute: everything is reckoned
anew; by less, the clock is waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeAlias

import msgspec
import structlog

from aliquot.clock import now_ms as wall_clock_ms
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.store.base import Store, StoreError
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import Namespace, Trigger
from aliquot.live.triggers.alarms.alarm import Alarm, after_firing, next_fire
from aliquot.live.triggers.alarms.due_queue import DueQueue, Key
from aliquot.live.triggers.alarms.schedule import SingleDate
from aliquot.live.triggers.alarms.table import AlarmTable

LOOK_S = 10  # at most so long between two looks at the wall clock
SET_BACK_MS = 60_000
STOP_S = 5
RETRY_MS = 60_000  # a minute's bound on firings has passed by then
ATTEMPTS = 5
TRANSACTION = "sid_alarms"  # no client's may begin so

Fire: TypeAlias = Callable[[Namespace, Trigger, bytes, str], Awaitable[object]]  # raises when it did not

_log = structlog.get_logger("aliquot.alarms")


class AlarmClock:
    def __init__(
        self, store: Store, catalogue: Catalogue, fire: Fire, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self._catalogue = catalogue
        self._fire = fire
        self.now_ms = now_ms
        self.book = AlarmTable(store, catalogue)
        self.missed = 0  # firings that were due and did not come to be
        self._agenda = DueQueue()
        self._firing: set[Key] = set()  # under way
        self._failed: dict[Key, int] = {}  # single dates: how often they did not fire
        self._timer: asyncio.TimerHandle | None = None
        self._looked_ms = 0
        self._running = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """When the catalogue is there."""
        await self.book.load()
        self._running = True
        self._reckon()
        self._wind()

    async def stop(self) -> None:
        """Firings that are under way may come to their end."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        for task in self._tasks:
            task.cancel()

    @property
    def planned(self) -> int:
        """How many alarms are to fire."""
        return sum(alarm.stopped is None for alarm in self.book.alarms.values())

    async def put(self, alarm: Alarm) -> None:
        """Durable on return."""
        await self.book.put(alarm)
        self._failed.pop(alarm.key, None)
        self._plan(alarm)
        self._wind()

    # --- looking ----------------------------------------------------------------------------------------

    def _reckon(self) -> None:
        self._looked_ms = self.now_ms()
        for alarm in self.book.alarms.values():
            self._plan(alarm)

    def _plan(self, alarm: Alarm) -> None:
        try:
            due = next_fire(alarm, self.now_ms())
        except ValueError as error:  # it could be read when it was made: a time zone may have been abolished since
            _tell("alarm cannot fire", alarm, repr(error))
            due = None
        self._agenda.set(alarm.key, due)

    def _wind(self) -> None:
        """Look again when something is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._agenda.next_due
        if self._running and due is not None:
            wait_s = min(max(0.001, (due - self.now_ms()) / 1000), LOOK_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        now = self.now_ms()
        if now < self._looked_ms - SET_BACK_MS:
            _log.warning("the wall clock was set back", by_s=(self._looked_ms - now) // 1000)
            self._reckon()
        self._looked_ms = now
        for key in self._agenda.take(now):
            alarm = self.book.alarms.get(key)
            if alarm is not None:  # it may be gone since
                self._set_off(alarm, now)
        self._wind()

    # --- firing -----------------------------------------------------------------------------------------

    def _set_off(self, alarm: Alarm, now: int) -> None:
        left = self.book.alarms[alarm.key] = after_firing(alarm, now)
        self._plan(left)
        if alarm.key in self._firing:
            self.missed += 1
            _tell("alarm skipped", alarm, "its last firing is under way")
            self._spawn(self._settle(left))
        else:
            self._firing.add(alarm.key)
            self._spawn(self._go_off(alarm, left))

    async def _go_off(self, alarm: Alarm, left: Alarm) -> None:
        key = alarm.key
        try:
            fired = await self._fired(alarm)
        finally:
            self._firing.discard(key)
        failed = 0 if fired else self._failed.get(key, 0) + 1
        if isinstance(alarm.schedule, SingleDate) and 0 < failed < ATTEMPTS:  # of all others the next comes anyway
            if self.book.alarms.get(key) is left:
                self._failed[key] = failed
                self.book.alarms[key] = alarm
                self._agenda.set(key, self.now_ms() + RETRY_MS)
                self._wind()
            return
        self._failed.pop(key, None)
        await self._settle(left)

    async def _fired(self, alarm: Alarm) -> bool:
        """Whether there is nothing more to do about it."""
        namespace, trigger = self._catalogue.namespace(alarm.namespace), self.book.trigger_of(alarm)
        try:
            if namespace is None or trigger is None:
                await self.book.remove(alarm)
            else:
                await self._fire(namespace, trigger, msgspec.json.encode(alarm.payload), TRANSACTION)
        except Exception as error:  # noqa: BLE001 - the clock goes on, whatever becomes of one firing
            self.missed += 1
            _tell("alarm did not fire", alarm, str(error))
            return False
        return True

    async def _settle(self, left: Alarm) -> None:
        """Write what is left of it, if that decides anything."""
        if left.stopped is None and not left.counts:
            return
        try:
            if await self.book.note(left) and isinstance(left.schedule, SingleDate):
                await self._clear_away(left, left.schedule.delete_after_fire)
        except StoreError as error:
            _tell("alarm not recorded", left, str(error))

    async def _clear_away(self, alarm: Alarm, what: str) -> None:
        """The trigger, as its owner wished, and its rules."""
        if what == "false":
            return
        try:
            async with self._catalogue.writing(alarm.namespace):
                trigger = self.book.trigger_of(alarm)
                if trigger is not None:
                    rules = self._catalogue.entities.rules_of(trigger) if what == "rules" else ()
                    await self._catalogue.delete(*(rule for rule in rules if rule.tied == trigger.identity), trigger)
        except NotFoundError:  # the namespace is gone with all it had
            return
        await self.book.remove(alarm)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tell(what: str, alarm: Alarm, why: str) -> None:
    _log.warning(what, namespace=alarm.namespace, trigger=alarm.trigger, why=why)
