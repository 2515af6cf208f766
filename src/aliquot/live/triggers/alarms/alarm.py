"""An alarm: a trigger's schedule, how often it has fired, and whether it goes on."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aliquot.live.triggers.alarms.schedule import CronSchedule, Schedule, SingleDate, due_after

REACHED_MOST = "Automatically disabled after reaching max triggers"
FIRED_ONCE = "Automatically disabled after firing once"
FIRED_LAST = "Automatically disabled after firing last scheduled trigger"
PAUSED = "Paused by its owner"


class Alarm(Struct, frozen=True, omit_defaults=True):
    """As it is stored. Nobody's key is in it: it fires on the platform's own authority."""

    namespace: str
    trigger: str
    identity: str  # of the trigger that it was made for: another of the same name does not inherit it
    schedule: Schedule
    payload: dict[str, Any]
    changed: int  # epoch ms
    fired: int = 0
    stopped: str | None = None  # why it does not fire any more

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.trigger

    @property
    def counts(self) -> bool:
        """How often it has fired decides whether it goes on."""
        return isinstance(self.schedule, SingleDate) or (
            isinstance(self.schedule, CronSchedule) and self.schedule.max_triggers is not None
        )


def next_fire(alarm: Alarm, now_ms: int) -> int | None:
    """When it is due, in epoch ms; None: never again. What was due before now is not made up for, but a single date."""
    if alarm.stopped is not None or _spent(alarm) is not None:
        return None
    return due_after(alarm.schedule, now_ms)


def after_firing(alarm: Alarm, now_ms: int) -> Alarm:
    """What is left of it."""
    fired = replace(alarm, fired=alarm.fired + 1)
    if next_fire(fired, now_ms) is not None:
        return fired
    return replace(fired, stopped=_spent(fired) or FIRED_LAST, changed=now_ms)


def _spent(alarm: Alarm) -> str | None:
    match alarm.schedule:
        case SingleDate() if alarm.fired:
            return FIRED_ONCE
        case CronSchedule(max_triggers=int(most)) if alarm.fired >= most:
            return REACHED_MOST
    return None
