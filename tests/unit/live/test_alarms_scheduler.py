"""The alarm scheduler with a simulated wall clock: firings, restarts, and the end of alarms."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from gateway_client import on_a_loop

from aliquot.clock import now_ms
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.store.base import Document, StoreError
from aliquot.live.store.records import FullName, Rule, Trigger
from aliquot.live.triggers.alarms.alarm import Alarm
from aliquot.live.triggers.alarms.requests import AlarmRequest, make_alarm
from aliquot.live.triggers.alarms.schedule import CronSchedule
from aliquot.live.triggers.alarms.scheduler import MAX_ATTEMPTS, RETRY_DELAY_MS, AlarmScheduler, DueTimes
from aliquot.live.triggers.alarms.table import ALARMS
from aliquot.testing.platform import FakePlatform
from aliquot.testing.store import MemoryStore
from aliquot.testing.waiting import wait_on_loop

NOON = 1_767_268_800_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000


class Stage:
    """A scheduler and a catalogue with a trigger `t`. `fired` lists the firings with their times."""

    def __init__(self):
        self.store = MemoryStore()
        self.catalogue = Catalogue(self.store, FakePlatform(self.store))
        self.now = NOON
        self.fired = []
        self.expected = []  # firings that were told before
        self.refusal = None
        self.hold = None  # an event that all firings, or those of the trigger `held`, wait for
        self.held = None
        self.scheduler = None

    async def fire(self, namespace, trigger, payload, _):
        if self.hold is not None and self.held in {trigger.name, None}:
            await self.hold.wait()
        if self.refusal is not None:
            raise self.refusal
        self.fired.append((self.now, namespace.name, trigger.name, msgspec.json.decode(payload)))

    def expect(self, alarm, trigger, in_s):
        self.expected.append((self.now + in_s * 1000, alarm.trigger, trigger.name))

    async def start(self):
        """Start a new scheduler, as after a crash. Only the store is kept."""
        if self.scheduler is not None:
            await self.scheduler.stop()
        self.scheduler = AlarmScheduler(self.store, self.catalogue, self.fire, lambda: self.now, self.expect)
        await self.scheduler.start()
        await self.jump(0)

    async def set(self, trigger="t", **fields):
        identity = self.catalogue.entities.one(Trigger, "guest", trigger).identity
        names = {"namespace": "guest", "trigger": trigger, "identity": identity}
        await self.scheduler.put(make_alarm(AlarmRequest(**fields), **names, now_ms=self.now))

    async def put(self, entity):
        async with self.catalogue.writing("guest"):
            await self.catalogue.put(entity)

    async def delete(self, kind, name):
        async with self.catalogue.writing("guest"):
            await self.catalogue.delete(self.catalogue.entities.one(kind, "guest", name))

    def alarm(self):
        trigger = self.catalogue.entities.one(Trigger, "guest", "t")
        return self.scheduler.table.alarm_of(trigger) if trigger else None

    async def pass_by(self, ms, step=SECOND):
        for _ in range(ms // step):
            await self.jump(step)

    async def jump(self, ms):
        self.now += ms
        self.scheduler._fire_due()
        await self.quiet()

    async def quiet(self):
        for _ in range(20):
            await asyncio.sleep(0)

    async def stored(self):
        return [msgspec.json.decode(one.body, type=Alarm) for one in await self.store.scan(ALARMS)]


@asynccontextmanager
async def stage():
    made = Stage()
    await made.catalogue.create_namespace("guest")
    await made.put(Trigger("guest", "t", "0.0.1", identity="first"))
    await made.start()
    yield made
    await made.scheduler.stop()


@on_a_loop
async def test_an_alarm_fires_its_trigger_with_its_payload_at_each_of_its_moments():
    async with stage() as it:
        await it.set(cron="*/2 * * * * *", payload={"a": 1})
        await it.pass_by(5 * SECOND)
        assert it.fired == [(NOON + at * SECOND, "guest", "t", {"a": 1}) for at in (2, 4)]


@on_a_loop
async def test_what_has_no_bound_is_not_written_at_each_firing():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        it.store.fail("the disk is full")
        await it.pass_by(3 * SECOND)
        assert len(it.fired) == 3


@on_a_loop
async def test_alarms_go_on_after_a_crash_and_what_was_missed_is_not_made_up_for():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        it.now += HOUR
        await it.start()
        assert it.fired == []
        await it.pass_by(2 * SECOND)
        assert [at for at, *_ in it.fired] == [NOON + HOUR + SECOND, NOON + HOUR + 2 * SECOND]


@on_a_loop
async def test_a_single_date_that_was_missed_fires_at_the_start_and_once():
    async with stage() as it:
        await it.set(date=NOON + MINUTE)
        it.now += HOUR
        await it.start()
        await it.start()
        await it.pass_by(HOUR, MINUTE)
        assert [at for at, *_ in it.fired] == [NOON + HOUR]


@on_a_loop
async def test_how_often_it_fired_outlives_a_crash():
    async with stage() as it:
        await it.set(cron="* * * * * *", max_triggers=3)
        await it.pass_by(2 * SECOND)
        await it.start()
        await it.pass_by(5 * SECOND)
        assert len(it.fired) == 3
        assert (await it.stored())[0].stopped == "Automatically disabled after reaching max triggers"


@on_a_loop
async def test_an_alarm_ends_with_its_trigger():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        await it.delete(Trigger, "t")
        assert it.alarm() is None
        await it.pass_by(2 * SECOND)
        assert it.fired == []
        assert await it.stored() == []


@on_a_loop
async def test_alarms_go_with_their_namespace():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        await it.catalogue.delete_namespace("guest")
        assert await it.stored() == []
        await it.pass_by(2 * SECOND)
        assert (it.fired, it.scheduler.active) == ([], 0)


@on_a_loop
async def test_a_trigger_of_the_same_name_does_not_inherit_it():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        await it.delete(Trigger, "t")
        await it.put(Trigger("guest", "t", "0.0.1", identity="second"))
        assert it.alarm() is None
        await it.pass_by(2 * SECOND)
        assert it.fired == []


@on_a_loop
async def test_removing_an_alarm_keeps_the_alarm_of_a_later_trigger_of_the_same_name():
    async with stage() as it:
        await it.set(cron="* * * * * *", payload={"of": "first"})
        await it.delete(Trigger, "t")
        await it.put(Trigger("guest", "t", "0.0.1", identity="second"))
        async with it.scheduler.table.writing:  # the disk is slow
            making = asyncio.create_task(it.set(cron="* * * * * *", payload={"of": "second"}))
            await it.quiet()
            await it.jump(SECOND)  # the first alarm is due, and must be removed
        await making
        await it.quiet()
        await it.pass_by(2 * SECOND)
        assert [payload for *_, payload in it.fired] == [{"of": "second"}, {"of": "second"}]


@on_a_loop
async def test_an_alarm_whose_trigger_is_gone_is_removed_at_start():
    async with stage() as it:
        await it.set(cron="0 0 1 1 *")
        await it.delete(Trigger, "t")
        await it.start()
        assert await it.stored() == []


@on_a_loop
async def test_a_removed_alarm_is_gone_for_good():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        await it.scheduler.table.remove(it.alarm())
        await it.pass_by(2 * SECOND)
        await it.start()
        await it.pass_by(2 * SECOND)
        assert it.fired == []


@on_a_loop
async def test_a_change_counts_from_when_it_is_made():
    async with stage() as it:
        await it.set(cron="* * * * * *", payload={"a": 1})
        await it.pass_by(SECOND)
        await it.set(cron="*/5 * * * * *", payload={"a": 2})
        await it.pass_by(5 * SECOND)
        assert [(at - NOON, payload["a"]) for at, _, _, payload in it.fired] == [(SECOND, 1), (5 * SECOND, 2)]


@on_a_loop
async def test_a_clock_that_jumps_ahead_makes_no_storm():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        await it.jump(24 * HOUR)
        assert len(it.fired) == 1
        await it.pass_by(2 * SECOND)
        assert len(it.fired) == 3


@on_a_loop
async def test_a_clock_that_is_set_back_is_believed():
    async with stage() as it:
        await it.set(cron="* * * * *")
        await it.pass_by(MINUTE)
        await it.jump(-24 * HOUR)
        await it.pass_by(2 * MINUTE)
        assert [at - NOON for at, *_ in it.fired] == [MINUTE, -24 * HOUR + 2 * MINUTE, -24 * HOUR + 3 * MINUTE]


@on_a_loop
async def test_a_clock_that_is_set_back_a_little_is_waited_for():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        await it.pass_by(3 * SECOND)
        await it.jump(-2 * SECOND)
        await it.pass_by(4 * SECOND)
        assert [at - NOON for at, *_ in it.fired] == [SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND, 5 * SECOND]


@on_a_loop
async def test_a_firing_that_is_refused_counts_and_the_next_comes():
    async with stage() as it:
        await it.set(cron="* * * * * *", max_triggers=3)
        it.refusal = ValueError("Too many requests in the last minute (count: 61, allowed: 60).")
        await it.pass_by(SECOND)
        it.refusal = None
        await it.pass_by(5 * SECOND)
        assert [at - NOON for at, *_ in it.fired] == [2 * SECOND, 3 * SECOND]
        assert (it.scheduler.missed, it.scheduler.active) == (1, 0)


@on_a_loop
async def test_a_single_date_that_is_refused_is_tried_again_a_few_times():
    async with stage() as it:
        await it.set(date=NOON + SECOND)
        it.refusal = ValueError("Too many requests")
        await it.jump(SECOND)
        it.refusal = None
        await it.jump(RETRY_DELAY_MS)
        assert [at for at, *_ in it.fired] == [NOON + SECOND + RETRY_DELAY_MS]
        await it.set(date=it.now + SECOND)
        it.refusal = ValueError("Too many requests")
        await it.jump(SECOND)
        assert (await it.stored())[0].stopped is None
        await it.pass_by(MAX_ATTEMPTS * RETRY_DELAY_MS, RETRY_DELAY_MS)
        assert (await it.stored())[0].stopped == "Automatically disabled after firing once"


@on_a_loop
async def test_one_firing_at_a_time():
    async with stage() as it:
        await it.set(cron="* * * * * *")
        it.hold = asyncio.Event()
        await it.pass_by(10 * SECOND)
        it.hold.set()
        await it.quiet()
        assert len(it.fired) == 1
        await it.pass_by(SECOND)
        assert len(it.fired) == 2


@on_a_loop
async def test_a_slow_firing_does_not_keep_others():
    async with stage() as it:
        await it.put(Trigger("guest", "u", "0.0.1", identity="another"))
        await it.set(cron="* * * * * *")
        await it.set("u", cron="* * * * * *")
        it.hold, it.held = asyncio.Event(), "t"
        await it.pass_by(2 * SECOND)
        assert [trigger for _, _, trigger, _ in it.fired] == ["u", "u"]
        it.hold.set()


@on_a_loop
async def test_delete_after_fire_deletes_the_trigger_and_on_request_its_rules():
    for setting, rules in (("true", ["r"]), ("rules", [])):
        async with stage() as it:
            rule = Rule("guest", "r", "0.0.1", FullName("guest", "t"), FullName("guest", "a"), tied="first")
            await it.put(rule)
            await it.set(date=NOON + SECOND, delete_after_fire=setting)
            await it.pass_by(SECOND)
            assert len(it.fired) == 1
            assert it.catalogue.entities.one(Trigger, "guest", "t") is None
            assert [rule.name for rule in it.catalogue.entities.all(Rule, "guest")] == rules
            assert await it.stored() == []


@on_a_loop
async def test_an_alarm_that_cannot_be_written_is_not_there():
    async with stage() as it:
        it.store.fail("the disk is full")
        with pytest.raises(StoreError):
            await it.set(cron="* * * * * *")
        assert it.alarm() is None


@on_a_loop
async def test_an_alarm_whose_time_zone_is_gone_does_not_stop_the_others():
    async with stage() as it:
        await it.put(Trigger("guest", "u", "0.0.1", identity="another"))
        await it.set("u", cron="* * * * * *")
        lost = Alarm("guest", "t", "first", CronSchedule("* * * * * *", "Mars/Olympus"), {}, NOON)
        await it.store.put(ALARMS, Document("guest", "t", msgspec.json.encode(lost)))
        await it.start()
        await it.pass_by(2 * SECOND)
        assert [trigger for _, _, trigger, _ in it.fired] == ["u", "u"]
        await it.set(cron="* * * * * *")
        await it.pass_by(SECOND)
        assert [trigger for _, _, trigger, _ in it.fired] == ["u", "u", "t", "u"]


@on_a_loop
async def test_the_timer_fires_a_due_alarm():
    """This test uses the event loop's timer and the real wall clock."""
    async with stage() as it:
        await it.scheduler.stop()
        scheduler = AlarmScheduler(it.store, it.catalogue, it.fire)
        await scheduler.start()
        names = {"namespace": "guest", "trigger": "t", "identity": "first"}
        await scheduler.put(make_alarm(AlarmRequest(date=now_ms() + 20), **names, now_ms=now_ms()))
        await wait_on_loop(lambda: it.fired, what="the alarm")
        await scheduler.stop()
        assert len(it.fired) == 1


def test_due_times_do_not_grow_with_the_number_of_changes():
    due_times = DueTimes()
    for due in range(10_000, 0, -1):
        due_times.set(("guest", "t"), due)
    assert len(due_times._heap) < 100
    assert due_times.next_due == 1
    assert due_times.pop_due(5) == [("guest", "t")]
    assert (due_times.next_due, due_times.pop_due(20_000)) == (None, [])


@on_a_loop
async def test_a_firing_is_told_two_minutes_before_it_is_due_and_once():
    async with stage() as it:
        await it.set(cron="0 */5 * * * *")
        await it.pass_by(2 * MINUTE)
        assert it.expected == []
        await it.pass_by(12 * MINUTE)
        assert it.expected == [(NOON + at * MINUTE, "t", "t") for at in (5, 10, 15)]
