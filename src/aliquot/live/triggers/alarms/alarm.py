"""An alarm: the schedule of a trigger, and its progress."""

from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aliquot.live.triggers.alarms.schedule import CronSchedule, Schedule, SingleDate, due_after

MAX_TRIGGERS_REACHED = "Automatically disabled after reaching max triggers"
FIRED_ONCE = "Automatically disabled after firing once"
FIRED_LAST = "Automatically disabled after firing last scheduled trigger"
PAUSED = "Paused by its owner"
AlarmKey: TypeAlias = tuple[str, str]  # namespace and name of the trigger


class Alarm(Struct, frozen=True, omit_defaults=True):
    """The stored record of an alarm. It holds no key, because the platform itself fires the trigger."""

    namespace: str
    trigger: str
    identity: str  # identity of its trigger; a later trigger of the same name does not inherit the alarm
    schedule: Schedule
    payload: dict[str, Any]
    changed: int  # epoch ms
    fired: int = 0  # number of firings
    stopped: str | None = None  # why it does not fire any more, or None

    @property
    def key(self) -> AlarmKey:
        return self.namespace, self.trigger

    @property
    def counts_firings(self) -> bool:
        """True if the number of firings decides when the alarm ends."""
        return isinstance(self.schedule, SingleDate) or (
            isinstance(self.schedule, CronSchedule) and self.schedule.max_triggers is not None
        )


def next_fire(alarm: Alarm, now_ms: int) -> int | None:
    """Return the next firing in milliseconds since the epoch, or None if there is none.

    Missed firings are skipped. Only a single date stays due until it has fired.
    """
    if alarm.stopped is not None or _finished_reason(alarm) is not None:
        return None
    return due_after(alarm.schedule, now_ms)


def after_firing(alarm: Alarm, now_ms: int) -> Alarm:
    """Return the alarm after a firing. It is stopped if that was the last one."""
    fired = replace(alarm, fired=alarm.fired + 1)
    if next_fire(fired, now_ms) is not None:
        return fired
    return replace(fired, stopped=_finished_reason(fired) or FIRED_LAST, changed=now_ms)


def _finished_reason(alarm: Alarm) -> str | None:
    match alarm.schedule:
        case SingleDate() if alarm.fired:
            return FIRED_ONCE
        case CronSchedule(max_triggers=int(limit)) if alarm.fired >= limit:
            return MAX_TRIGGERS_REACHED
    return None
