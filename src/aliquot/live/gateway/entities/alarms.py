"""Endpoints for the alarms of triggers, which the feed actions of `/whisk.system/alarms` call."""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.http.names import check_name
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, Query, Request, Response, json_response, read_json
from aliquot.live.store.records import Trigger
from aliquot.live.triggers.alarms.alarm import PAUSED, Alarm
from aliquot.live.triggers.alarms.requests import AlarmRequest, change_alarm, make_alarm
from aliquot.live.triggers.alarms.scheduler import AlarmScheduler

_ONE = "/api/v1/namespaces/{namespace}/alarms/{trigger}"


class AlarmReason(Struct):
    kind: str
    message: str


class AlarmStatus(
    Struct, rename={"date_changed": "dateChanged", "date_changed_iso": "dateChangedISO"}, omit_defaults=True
):
    active: bool
    date_changed: int
    date_changed_iso: str
    reason: AlarmReason | None = None


class AlarmRead(Struct):
    """The feeds' result of READ: the alarm's configuration, with the names of the request, and its status."""

    config: dict[str, Any]
    status: AlarmStatus


class AlarmDone(Struct):
    status: str = "success"


class AlarmEndpoints:
    """Handles requests for alarms."""

    def __init__(self, catalogue: Catalogue, scheduler: AlarmScheduler, max_alarms: int) -> None:
        self._max_alarms = max_alarms  # of one namespace
        self._catalogue = catalogue
        self._scheduler = scheduler
        self._table = scheduler.table

    def endpoints(self) -> list[Endpoint]:
        overwrite = Query("overwrite", bool, "change the alarm if it exists")
        return [
            Endpoint("PUT", _ONE, self.put, "Set a trigger's alarm", {200: AlarmDone}, body=AlarmRequest,
                     query=(overwrite,), max_bytes=MIB, statuses=(404, 409, 413, 415)),
            Endpoint("GET", _ONE, self.get, "Read a trigger's alarm", {200: AlarmRead}, statuses=(404,)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a trigger's alarm", {200: AlarmDone}, statuses=(404,)),
        ]  # fmt: skip

    async def put(self, request: Request) -> Response:
        overwrite = flag(request.fields, "overwrite")
        alarm_request: AlarmRequest = read_json(request.body or b"{}", AlarmRequest)
        trigger = self._trigger(request)
        old = self._table.alarm_of(trigger)
        now_ms = self._scheduler.now_ms()
        if old is not None and not overwrite:
            raise Refusal(409, "error creating alarm trigger.")
        if old is not None:
            new = change_alarm(old, alarm_request, now_ms=now_ms)
        elif overwrite and alarm_request.cron is alarm_request.minutes is alarm_request.date is None:
            raise _no_alarm(trigger)
        else:
            self._check_number(trigger.namespace)
            names = {"namespace": trigger.namespace, "trigger": trigger.name, "identity": trigger.identity}
            new = make_alarm(alarm_request, **names, now_ms=now_ms)
        await self._scheduler.put(new)
        return json_response(AlarmDone())

    def _check_number(self, namespace: str) -> None:
        """Raise a 429 if the namespace has as many alarms as it may."""
        count = sum(owner == namespace for owner, _ in self._table.alarms)
        if count >= self._max_alarms:
            raise Refusal(429, f"Too many alarms in the namespace (count: {count}, allowed: {self._max_alarms}).")

    async def get(self, request: Request) -> Response:
        trigger = self._trigger(request)
        alarm = self._table.alarm_of(trigger)
        if alarm is None:
            raise _no_alarm(trigger)
        return json_response(alarm_view(alarm))

    async def delete(self, request: Request) -> Response:
        """Delete the alarm. Clients delete the trigger first, so a missing trigger is no error."""
        name = check_name(request.names["trigger"])
        trigger = self._catalogue.entities.one(Trigger, request.namespace, name)
        alarm = self._table.alarm_of(trigger) if trigger is not None else None
        if alarm is not None:
            await self._table.remove(alarm)
        elif trigger is not None:
            raise _no_alarm(trigger)
        return json_response(AlarmDone())

    def _trigger(self, request: Request) -> Trigger:
        name = check_name(request.names["trigger"])
        trigger = self._catalogue.entities.one(Trigger, request.namespace, name)
        if trigger is None:
            raise Refusal(404, f"trigger /{request.namespace}/{name} does not exist")
        return trigger


def alarm_view(alarm: Alarm) -> AlarmRead:
    config: dict[str, Any] = {"name": alarm.trigger, "namespace": alarm.namespace, "payload": alarm.payload}
    for field in alarm.schedule.__struct_fields__:
        if (value := getattr(alarm.schedule, field)) is not None:
            first, *more = field.split("_")
            config["".join([first, *map(str.title, more)])] = value
    changed = datetime.fromtimestamp(alarm.changed // 1000, UTC).isoformat().replace("+00:00", "Z")
    reason = AlarmReason("USER" if alarm.stopped == PAUSED else "AUTO", alarm.stopped) if alarm.stopped else None
    return AlarmRead(config, AlarmStatus(reason is None, alarm.changed, changed, reason))


def _no_alarm(trigger: Trigger) -> Refusal:
    return Refusal(404, f"could not find trigger /{trigger.namespace}/{trigger.name} in the database")
