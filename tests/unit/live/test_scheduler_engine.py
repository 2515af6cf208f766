"""The engine: events of one turn become one step, and the scheduler is never woken before its time."""

import asyncio
import time

import pytest
import uvloop

from aliquot.config import PolicySettings
from aliquot.core.commands import WakeAt
from aliquot.core.events import HostMemorySet, Woke
from aliquot.live.invocations.engine import Engine
from aliquot.testing.store import MemoryStore
from aliquot.testing.waiting import wait_on_loop


class ScriptedScheduler:
    """Records its steps, and asks to be woken after each of the given delays."""

    def __init__(self, delays_s):
        self.steps = []
        self.due = []
        self._delays = iter(delays_s)

    def step(self, now, events):
        self.steps.append((now, events))
        delay_s = next(self._delays, None)
        if delay_s is None:
            return []
        self.due.append(now + delay_s)
        return [WakeAt(self.due[-1])]


def run(scene, delays_s=()):
    async def play():
        engine = Engine(PolicySettings("fcfs"), MemoryStore(), lambda _: lambda _: None)
        engine.scheduler = ScriptedScheduler(delays_s)
        await scene(engine, engine.scheduler)
        engine.stop()

    uvloop.run(play())


@pytest.mark.parametrize("delay_s", [0.0, 0.0001, 0.0004, 0.0007, 0.0013, 0.004])
def test_the_scheduler_is_woken_once_and_not_before_its_time(delay_s):
    async def scene(engine, scheduler):
        engine.post(HostMemorySet(1))
        await wait_on_loop(lambda: len(scheduler.steps), lambda steps: steps == 51, what="fifty wake-ups")
        for (woken, events), due in zip(scheduler.steps[1:], scheduler.due, strict=True):
            assert events == [Woke()]
            assert woken >= due

    run(scene, [delay_s] * 50)


def test_events_of_one_turn_are_one_step():
    async def scene(engine, scheduler):
        engine.post(HostMemorySet(1))
        engine.post(HostMemorySet(2))
        await asyncio.sleep(0)
        engine.post(HostMemorySet(3))
        await asyncio.sleep(0)
        assert [events for _, events in scheduler.steps] == [[HostMemorySet(1), HostMemorySet(2)], [HostMemorySet(3)]]

    run(scene)


def test_the_clock_is_read_once_for_all_events_of_a_turn(monkeypatch):
    readings = []
    monotonic = time.monotonic

    async def scene(engine, scheduler):
        monkeypatch.setattr(time, "monotonic", lambda: readings.append(monotonic()) or readings[-1])
        for number in range(10):
            engine.post(HostMemorySet(number))
            assert engine.now() == engine.now()
        await asyncio.sleep(0)
        monkeypatch.undo()
        assert len(readings) == 1
        ((now, events),) = scheduler.steps
        assert len(events) == 10
        assert engine.now() > now

    run(scene)
