"""Fire triggers when their alarms are due.

Alarms survive a crash. Firings that were due while no server ran are skipped, except single dates, which fire when the
server starts. The number of firings is written after each firing, so a crash may repeat a firing but not lose one. It
is written only if it decides when the alarm ends. An alarm ends with its trigger.

The wall clock may jump. After a jump ahead, each alarm that was due fires once. If the clock is set back by more than a
minute, all due times are computed again. If it is set back by less, alarms wait until the clock has caught up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import msgspec
import structlog

from aliquot.clock import now_ms as wall_clock_ms
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.store.base import Store, StoreError
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import Namespace, Trigger
from aliquot.live.triggers.alarms.alarm import Alarm, AlarmKey, after_firing, next_fire
from aliquot.live.triggers.alarms.schedule import SingleDate
from aliquot.live.triggers.alarms.table import AlarmTable

SOON_MS = 120_000  # before it is due, an alarm is told of
MAX_TIMER_S = 10  # between two readings of the wall clock
MIN_SET_BACK_MS = 60_000
STOP_TIMEOUT_S = 5
RETRY_DELAY_MS = 60_000  # firings per minute may have been exceeded, so wait for the next minute
MAX_ATTEMPTS = 5
TRANSACTION = "sid_alarms"  # clients cannot use transaction ids that begin with `sid_`

ExpectTrigger: TypeAlias = Callable[[Alarm, Trigger, float], None]  # with the seconds until it fires
FireTrigger: TypeAlias = Callable[[Namespace, Trigger, bytes, str], Awaitable[object]]  # raises if it fails

_log = structlog.get_logger("aliquot.alarms")


class DueTimes:
    """A priority queue of due times, one for each alarm.

    Changed times stay in the heap until they come up or the heap has grown too large.
    """

    def __init__(self) -> None:
        self._due: dict[AlarmKey, int] = {}
        self._heap: list[tuple[int, AlarmKey]] = []

    def set(self, key: AlarmKey, due_ms: int | None) -> None:
        """Set the due time of an alarm, or remove it with None."""
        if due_ms is None:
            self._due.pop(key, None)
            return
        self._due[key] = due_ms
        heappush(self._heap, (due_ms, key))
        if len(self._heap) > 2 * len(self._due) + 64:  # frequent changes must not fill the memory
            self._heap = [(due, key) for key, due in self._due.items()]
            heapify(self._heap)

    @property
    def next_due(self) -> int | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def before(self, until_ms: int) -> list[tuple[AlarmKey, int]]:
        """Return the alarms that are due until then, with their times."""
        return [(key, due) for key, due in self._due.items() if due <= until_ms]

    def pop_due(self, now_ms: int) -> list[AlarmKey]:
        """Remove and return the alarms that are due, in order."""
        due_keys = []
        while (due := self.next_due) is not None and due <= now_ms:
            key = heappop(self._heap)[1]
            del self._due[key]
            due_keys.append(key)
        return due_keys


class AlarmScheduler:
    """Keeps a timer for the next due alarm, and fires alarms as their schedules say."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        fire: FireTrigger,
        now_ms: Callable[[], int] = wall_clock_ms,
        expect: ExpectTrigger = lambda _alarm, _trigger, _in_s: None,
    ) -> None:
        """`expect` is called with alarms that fire soon."""
        self._catalogue = catalogue
        self._fire = fire
        self._expect = expect
        self._told: dict[AlarmKey, int] = {}  # due times that were expected
        self.now_ms = now_ms
        self.table = AlarmTable(store, catalogue)
        self.missed = 0  # firings that were due but failed or were skipped
        self._due_times = DueTimes()
        self._firing: set[AlarmKey] = set()  # alarms whose trigger is being fired
        self._failed: dict[AlarmKey, int] = {}  # failed attempts of single dates
        self._timer: asyncio.TimerHandle | None = None
        self._checked_ms = 0
        self._running = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load the alarms and start the timer. The catalogue must be loaded before."""
        await self.table.load()
        self._running = True
        self._schedule_all()
        self._set_timer()

    async def stop(self) -> None:
        """Stop the timer. Wait for running firings, but not longer than the timeout."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_TIMEOUT_S)
        for task in self._tasks:
            task.cancel()

    @property
    def active(self) -> int:
        """The number of alarms that have not stopped."""
        return sum(alarm.stopped is None for alarm in self.table.alarms.values())

    async def put(self, alarm: Alarm) -> None:
        """Add or replace an alarm. Durable."""
        await self.table.put(alarm)
        self._failed.pop(alarm.key, None)
        self._schedule(alarm)
        self._set_timer()

    # --- scheduling -------------------------------------------------------------------------------------

    def _schedule_all(self) -> None:
        self._checked_ms = self.now_ms()
        for alarm in self.table.alarms.values():
            self._schedule(alarm)

    def _schedule(self, alarm: Alarm) -> None:
        try:
            due = next_fire(alarm, self.now_ms())
        except ValueError as error:  # valid when it was made, but its time zone may be unknown now
            _warn("alarm cannot fire", alarm, repr(error))
            due = None
        self._due_times.set(alarm.key, due)

    def _set_timer(self) -> None:
        """Set the timer for the next due alarm."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._due_times.next_due
        if self._running and due is not None:
            self._tell_soon(due)
            wait_s = min(max(0.001, (due - self.now_ms()) / 1000), MAX_TIMER_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._fire_due)

    def _tell_soon(self, due: int) -> None:
        """Tell of alarms that fire soon, each time of each alarm once. `due` is the first."""
        now = self.now_ms()
        if due > now + SOON_MS:
            return
        self._told = {key: at for key, at in self._told.items() if at > now}
        for key, at in self._due_times.before(now + SOON_MS):
            alarm = self.table.alarms.get(key)
            trigger = None if alarm is None or self._told.get(key) == at else self.table.trigger_of(alarm)
            if alarm is not None and trigger is not None:
                self._told[key] = at
                self._expect(alarm, trigger, max(0.0, (at - now) / 1000))

    def _fire_due(self) -> None:
        now = self.now_ms()
        if now < self._checked_ms - MIN_SET_BACK_MS:
            _log.warning("the wall clock was set back", by_s=(self._checked_ms - now) // 1000)
            self._schedule_all()
        self._checked_ms = now
        for key in self._due_times.pop_due(now):
            alarm = self.table.alarms.get(key)
            if alarm is not None:  # it may have been removed
                self._begin_firing(alarm, now)
        self._set_timer()

    # --- firing -----------------------------------------------------------------------------------------

    def _begin_firing(self, alarm: Alarm, now: int) -> None:
        progressed = self.table.alarms[alarm.key] = after_firing(alarm, now)
        self._schedule(progressed)
        if alarm.key in self._firing:
            self.missed += 1
            _warn("alarm skipped", alarm, "its last firing is still running")
            self._spawn(self._store_progress(progressed))
        else:
            self._firing.add(alarm.key)
            self._spawn(self._fire_alarm(alarm, progressed))

    async def _fire_alarm(self, alarm: Alarm, progressed: Alarm) -> None:
        key = alarm.key
        try:
            fired = await self._try_fire(alarm)
        finally:
            self._firing.discard(key)
        failed = 0 if fired else self._failed.get(key, 0) + 1
        if isinstance(alarm.schedule, SingleDate) and 0 < failed < MAX_ATTEMPTS:  # other schedules fire again anyway
            if self.table.alarms.get(key) is progressed:
                self._failed[key] = failed
                self.table.alarms[key] = alarm
                self._due_times.set(key, self.now_ms() + RETRY_DELAY_MS)
                self._set_timer()
            return
        self._failed.pop(key, None)
        await self._store_progress(progressed)

    async def _try_fire(self, alarm: Alarm) -> bool:
        """Fire the trigger, or remove the alarm if its trigger is gone. Return False if that failed."""
        namespace, trigger = self._catalogue.namespace(alarm.namespace), self.table.trigger_of(alarm)
        try:
            if namespace is None or trigger is None:
                await self.table.remove(alarm)
            else:
                await self._fire(namespace, trigger, msgspec.json.encode(alarm.payload), TRANSACTION)
        except Exception as error:  # noqa: BLE001 - a failed firing must not stop the scheduler
            self.missed += 1
            _warn("alarm did not fire", alarm, str(error))
            return False
        return True

    async def _store_progress(self, progressed: Alarm) -> None:
        """Write the alarm after a firing, if its progress decides when it ends."""
        if progressed.stopped is None and not progressed.counts_firings:
            return
        try:
            if await self.table.write_if_current(progressed) and isinstance(progressed.schedule, SingleDate):
                await self._delete_trigger(progressed, progressed.schedule.delete_after_fire)
        except StoreError as error:
            _warn("alarm not recorded", progressed, str(error))

    async def _delete_trigger(self, alarm: Alarm, what: str) -> None:
        """Delete the trigger of a fired alarm, and its rules, as `delete_after_fire` says."""
        if what == "false":
            return
        try:
            async with self._catalogue.writing(alarm.namespace):
                trigger = self.table.trigger_of(alarm)
                if trigger is not None:
                    rules = self._catalogue.entities.rules_of(trigger) if what == "rules" else ()
                    await self._catalogue.delete(*(rule for rule in rules if rule.tied == trigger.identity), trigger)
        except NotFoundError:  # the namespace was deleted, and the alarm with it
            return
        await self.table.remove(alarm)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _warn(what: str, alarm: Alarm, why: str) -> None:
    _log.warning(what, namespace=alarm.namespace, trigger=alarm.trigger, why=why)
