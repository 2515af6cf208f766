"""Validate a client's request, and make or change an alarm. Error messages are OpenWhisk's where it has one."""

from typing import Any

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.live.triggers.alarms.alarm import PAUSED, Alarm, next_fire
from aliquot.live.triggers.alarms.cron import CronError, read_cron
from aliquot.live.triggers.alarms.schedule import (
    CronSchedule,
    IntervalSchedule,
    Moment,
    Schedule,
    SingleDate,
    read_date,
)
from aliquot.live.triggers.alarms.zones import ZoneError, read_zone

FIRST_INTERVAL_MS = 30_000  # delay of the first firing without a start date, to leave time for making a rule
_MAX_NUMBER = 10**9
_DELETE = ("false", "true", "rules")


class AlarmRequest(Struct, rename="camel"):
    """The body of a request. A new alarm takes one of cron, minutes and date.

    In a change, absent fields stay as they are. Fields that the kind of alarm does not have are ignored.
    """

    cron: str | int | float | None = None  # numbers are accepted here, so that the error can quote them
    timezone: str | None = None
    minutes: int | float | str | None = None
    date: Moment | None = None
    start_date: Moment | None = None
    stop_date: Moment | None = None
    max_triggers: int | str | None = None
    delete_after_fire: bool | str | None = None
    payload: Any = None
    active: bool | None = None


def make_alarm(request: AlarmRequest, *, namespace: str, trigger: str, identity: str, now_ms: int) -> Alarm:
    """Make a new alarm. Raises `InputError`."""
    kinds = [name for name in ("cron", "minutes", "date") if getattr(request, name) is not None]
    if len(kinds) != 1:
        raise InputError(f"an alarm takes one of cron, minutes and date, not {' and '.join(kinds) or 'none of them'}")
    blank: Schedule = SingleDate("") if request.date is not None else CronSchedule("")
    if request.minutes is not None:
        blank = IntervalSchedule(0, now_ms + FIRST_INTERVAL_MS)
    alarm = Alarm(namespace, trigger, identity, blank, {}, now_ms)
    return change_alarm(alarm, request, now_ms=now_ms)


def change_alarm(alarm: Alarm, request: AlarmRequest, *, now_ms: int) -> Alarm:
    """Change an alarm. Unless only `active` changes, firings are counted anew and a stopped alarm runs again.

    Raises `InputError`.
    """
    given = {name: value for name in request.__struct_fields__ if (value := getattr(request, name)) not in (None, "")}
    active = given.pop("active", None)
    payload = given.pop("payload", None)
    fields = {name: value for name, value in given.items() if name in alarm.schedule.__struct_fields__}
    if "max_triggers" in given and isinstance(alarm.schedule, IntervalSchedule):
        raise InputError("maxTriggers is not supported for the interval trigger feed")
    if not fields and payload is None:
        if active is None:
            raise InputError("no updatable parameters were specified")
        return _check_due(msgspec.structs.replace(alarm, stopped=None if active else PAUSED, changed=now_ms), now_ms)
    schedule = _apply_fields(alarm.schedule, fields, now_ms)
    body = alarm.payload if payload is None else read_payload(payload)
    stopped = PAUSED if active is False else None
    changed = msgspec.structs.replace(alarm, schedule=schedule, payload=body, changed=now_ms, fired=0, stopped=stopped)
    return _check_due(changed, now_ms)


def read_payload(given: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON holds
    """Return an object or parse the JSON text of one. Wrap any other value in an object with a field `payload`."""
    if isinstance(given, dict):
        return given
    if isinstance(given, str):
        try:
            return msgspec.json.decode(given, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass
    return {"payload": given}


def _apply_fields(schedule: Schedule, fields: dict[str, Any], now_ms: int) -> Schedule:
    """Validate the fields in OpenWhisk's order, and return the schedule with them."""
    if "date" in fields:
        _check_future(fields["date"], "date", now_ms)
    if "delete_after_fire" in fields:
        fields["delete_after_fire"] = _delete_after_fire(fields["delete_after_fire"])
    if "minutes" in fields:
        fields["minutes"] = _minutes(fields["minutes"])
    if isinstance(schedule, CronSchedule):
        fields["cron"] = str(fields.get("cron", schedule.cron))
        _check_cron(fields["cron"], fields.get("timezone", schedule.timezone))
    if "start_date" in fields:
        _check_future(fields["start_date"], "startDate", now_ms)
    if "max_triggers" in fields:
        fields["max_triggers"] = _max_triggers(fields["max_triggers"])
    changed = msgspec.structs.replace(schedule, **fields)
    if isinstance(changed, CronSchedule) and changed.max_triggers is not None and changed.stop_date is not None:
        raise InputError("maxTriggers is not allowed when the stopDate parameter is specified")
    if not isinstance(changed, SingleDate) and changed.stop_date is not None:
        _check_stop(changed.start_date, changed.stop_date, now_ms, given="stop_date" in fields)
    return changed


def _check_due(alarm: Alarm, now_ms: int) -> Alarm:
    if alarm.stopped is None and next_fire(alarm, now_ms) is None:
        why = "the first scheduled trigger fire is not until after the stop date"
        raise InputError(why if not alarm.fired else "it has fired as often as it was to; give it another date")
    return alarm


def _check_cron(cron: str, timezone: str | None) -> None:
    try:
        read_zone(timezone)
        read_cron(cron)
    except ZoneError as error:
        raise InputError("Invalid timezone.") from error
    except CronError as error:
        raise InputError(f"cron pattern '{cron}' is not valid: {error}") from error


def _check_future(given: Moment, name: str, now_ms: int) -> int:
    try:
        moment = read_date(given)
    except ValueError as error:
        raise InputError(f"{name} parameter '{given}' is not a valid Date") from error
    if moment <= now_ms:
        raise InputError(f"{name} parameter '{given}' must be in the future")
    return moment


def _check_stop(start: Moment | None, stop: Moment, now_ms: int, *, given: bool) -> None:
    moment = _check_future(stop, "stopDate", now_ms)
    if start is None or moment > read_date(start):
        return
    if given:
        raise InputError(f"stopDate parameter '{stop}' must be greater than the startDate parameter '{start}'")
    raise InputError(f"startDate parameter '{start}' must be less than the stopDate parameter '{stop}'")


def _minutes(given: float | str) -> int:
    try:
        minutes = float(given)
        whole = int(minutes)
    except (ValueError, OverflowError) as error:
        raise InputError("the minutes parameter must be an integer") from error
    if whole != minutes:
        raise InputError("the minutes parameter must be an integer")
    if whole <= 0:
        raise InputError("the minutes parameter must be an integer greater than zero")
    if whole > _MAX_NUMBER:
        raise InputError(f"the minutes parameter must be at most {_MAX_NUMBER}")
    return whole


def _max_triggers(given: int | str) -> int | None:
    try:
        limit = int(given)
    except ValueError as error:
        raise InputError(f"the maxTriggers parameter must be an integer, not '{given}'") from error
    if limit == -1:
        return None
    if not 0 < limit <= _MAX_NUMBER:
        raise InputError(f"the maxTriggers parameter must be an integer from 1 to {_MAX_NUMBER}, or -1 for no bound")
    return limit


def _delete_after_fire(given: bool | str) -> str:
    wanted = str(given).strip().lower()
    if wanted not in _DELETE:
        raise InputError("deleteAfterFire parameter must be one of [false, true, rules].")
    return wanted
