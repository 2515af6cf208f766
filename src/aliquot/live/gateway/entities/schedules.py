"""Schedules of actions: the annotation `schedule` makes a trigger with an alarm, and a rule that runs the action.

They are ordinary entities, which `aliquot trigger` and `aliquot rule` show. They end with the action or its annotation.
"""

import os
from typing import Any

from aliquot.clock import now_ms
from aliquot.core.errors import InputError
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.store.records import Action, FullName, Pair, Rule, Trigger
from aliquot.live.triggers.alarms.alarm import Alarm
from aliquot.live.triggers.alarms.requests import AlarmRequest, make_alarm
from aliquot.live.triggers.alarms.schedule import CronSchedule
from aliquot.live.triggers.alarms.scheduler import AlarmScheduler

SCHEDULE = "schedule"
_OWNER = "schedule-of"  # the annotation of a trigger that belongs to an action
_FIRST_VERSION = "0.0.1"
_MAX_NAME_LENGTH = 240


class ActionSchedules:
    """Keeps triggers, alarms and rules of scheduled actions. Call all methods within `Catalogue.writing`."""

    def __init__(self, catalogue: Catalogue, alarms: AlarmScheduler, max_alarms: int) -> None:
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._alarms = alarms
        self._max_alarms = max_alarms  # of one namespace

    def check(self, action: Action) -> None:
        """Refuse a schedule that does not parse or fit, before the action is written."""
        if action.annotation(SCHEDULE) is None:
            return
        name = _name_of(action)
        if len(name) > _MAX_NAME_LENGTH:
            raise Refusal(400, f"annotation schedule: the name of the action is too long for {name[:80]}…")
        self._make_alarm(action, "")
        for one in (name, _rule_name(action)):
            found = self._entities.any(action.namespace, one)
            if found is not None and found.annotation(_OWNER) != action.name:
                raise Refusal(409, f"annotation schedule: it needs the name {one}, which something else has; delete it")
        count = sum(namespace == action.namespace for namespace, _ in self._alarms.table.alarms)
        if count >= self._max_alarms and self._entities.any(action.namespace, name) is None:
            raise Refusal(429, f"Too many alarms in the namespace (count: {count}, allowed: {self._max_alarms}).")

    async def apply(self, action: Action) -> None:
        """Make the schedule of an action that was written, change it, or remove it if it has none any more."""
        if action.annotation(SCHEDULE) is None:
            await self.remove(action)
            return
        trigger = self._entities.one(Trigger, action.namespace, _name_of(action))
        known = trigger is not None
        if trigger is None:
            trigger = Trigger(
                namespace=action.namespace, name=_name_of(action), identity=os.urandom(8).hex(), **_fields(action)
            )
            await self._catalogue.put(trigger)
        rule = Rule(
            namespace=action.namespace,
            name=_rule_name(action),
            trigger=FullName(trigger.namespace, trigger.name),
            action=action.full_name,
            tied=trigger.identity,
            **_fields(action),
        )
        if self._entities.one(Rule, rule.namespace, rule.name) is None:
            await self._catalogue.put(rule)
        new = self._make_alarm(action, trigger.identity)
        old = self._alarms.table.alarm_of(trigger) if known else None
        if old is None or old.schedule != new.schedule:
            await self._alarms.put(new)

    async def remove(self, action: Action) -> None:
        """Remove the schedule of an action, if it has one."""
        trigger = self._entities.one(Trigger, action.namespace, _name_of(action))
        if trigger is None or trigger.annotation(_OWNER) != action.name:
            return
        alarm = self._alarms.table.alarm_of(trigger)
        if alarm is not None:
            await self._alarms.table.remove(alarm)
        rule = self._entities.one(Rule, action.namespace, _rule_name(action))
        mine = rule is not None and rule.annotation(_OWNER) == action.name
        await self._catalogue.delete(trigger, *([rule] if rule is not None and mine else []))

    def _make_alarm(self, action: Action, identity: str) -> Alarm:
        cron = str(action.annotation(SCHEDULE))
        names = {"namespace": action.namespace, "trigger": _name_of(action), "identity": identity}
        try:
            alarm = make_alarm(AlarmRequest(cron=cron), **names, now_ms=self._alarms.now_ms())
        except InputError as error:
            raise Refusal(400, f"annotation schedule: {error}; it takes one such as '*/5 * * * *', in UTC") from error
        if not isinstance(alarm.schedule, CronSchedule):
            raise Refusal(400, "annotation schedule: it takes one such as '*/5 * * * *', in UTC")
        return alarm


def _name_of(action: Action) -> str:
    return f"{action.name.replace('/', '.')}.schedule"


def _rule_name(action: Action) -> str:
    return f"{action.name.replace('/', '.')}.scheduled"


def _fields(action: Action) -> dict[str, Any]:
    return {"version": _FIRST_VERSION, "annotations": (Pair(_OWNER, action.name),), "updated": now_ms()}
