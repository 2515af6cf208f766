"""What a client asks of an alarm, read into a schedule or a change of one. The texts of refusals are OpenWhisk's."""

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

FIRST_INTERVAL_MS = 30_000  # without a start date: time to make a rule for the trigger
_MOST = 10**9
_DELETE = ("false", "true", "rules")


class AlarmRequest(Struct, rename="camel"):
    """One of cron, minutes and date. In a change, what is absent stays. What its kind has not is ignored."""

    cron: str | int | float | None = None  # whatever it is, the refusal quotes it
    timezone: str | None = None
    minutes: int | float | str | None = None
    date: Moment | None = None
    start_date: Moment | None = None
    stop_date: Moment | None = None
    max_triggers: int | str | None = None
    delete_after_fire: bool | str | None = None
    payload: Any = None
    active: bool | None = None


def make(wish: AlarmRequest, *, namespace: str, trigger: str, identity: str, now_ms: int) -> Alarm:
    """Raises `InputError`."""
    kinds = [name for name in ("cron", "minutes", "date") if getattr(wish, name) is not None]
    if len(kinds) != 1:
        raise InputError(f"an alarm takes one of cron, minutes and date, not {' and '.join(kinds) or 'none of them'}")
    blank: Schedule = SingleDate("") if wish.date is not None else CronSchedule("")
    if wish.minutes is not None:
        blank = IntervalSchedule(0, now_ms + FIRST_INTERVAL_MS)
    alarm = Alarm(namespace, trigger, identity, blank, {}, now_ms)
    return change(alarm, wish, now_ms=now_ms)


def change(alarm: Alarm, wish: AlarmRequest, *, now_ms: int) -> Alarm:
    """Any change but a pause makes it count from the beginning, and go on if it had stopped. Raises `InputError`."""
    given = {name: value for name in wish.__struct_fields__ if (value := getattr(wish, name)) not in (None, "")}
    active = given.pop("active", None)
    payload = given.pop("payload", None)
    fields = {name: value for name, value in given.items() if name in alarm.schedule.__struct_fields__}
    if "max_triggers" in given and isinstance(alarm.schedule, IntervalSchedule):
        raise InputError("maxTriggers is not supported for the interval trigger feed")
    if not fields and payload is None:
        if active is None:
            raise InputError("no updatable parameters were specified")
        return _check_due(msgspec.structs.replace(alarm, stopped=None if active else PAUSED, changed=now_ms), now_ms)
    schedule = _checked(alarm.schedule, fields, now_ms)
    body = alarm.payload if payload is None else read_payload(payload)
    stopped = PAUSED if active is False else None
    changed = msgspec.structs.replace(alarm, schedule=schedule, payload=body, changed=now_ms, fired=0, stopped=stopped)
    return _check_due(changed, now_ms)


def read_payload(given: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON holds
    """An object, or the text of one; anything else becomes an object with a `payload`."""
    if isinstance(given, dict):
        return given
    if isinstance(given, str):
        try:
            return msgspec.json.decode(given, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass
    return {"payload": given}


def _checked(schedule: Schedule, fields: dict[str, Any], now_ms: int) -> Schedule:
    """The schedule with these fields; they are looked at in OpenWhisk's order."""
    if "date" in fields:
        _future(fields["date"], "date", now_ms)
    if "delete_after_fire" in fields:
        fields["delete_after_fire"] = _delete_after_fire(fields["delete_after_fire"])
    if "minutes" in fields:
        fields["minutes"] = _minutes(fields["minutes"])
    if isinstance(schedule, CronSchedule):
        fields["cron"] = str(fields.get("cron", schedule.cron))
        _check_cron(fields["cron"], fields.get("timezone", schedule.timezone))
    if "start_date" in fields:
        _future(fields["start_date"], "startDate", now_ms)
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


def _future(given: Moment, name: str, now_ms: int) -> int:
    try:
        moment = read_date(given)
    except ValueError as error:
        raise InputError(f"{name} parameter '{given}' is not a valid Date") from error
    if moment <= now_ms:
        raise InputError(f"{name} parameter '{given}' must be in the future")
    return moment


def _check_stop(start: Moment | None, stop: Moment, now_ms: int, *, given: bool) -> None:
    moment = _future(stop, "stopDate", now_ms)
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
    if whole > _MOST:
        raise InputError(f"the minutes parameter must be at most {_MOST}")
    return whole


def _max_triggers(given: int | str) -> int | None:
    try:
        most = int(given)
    except ValueError as error:
        raise InputError(f"the maxTriggers parameter must be an integer, not '{given}'") from error
    if most == -1:
        return None
    if not 0 < most <= _MOST:
        raise InputError(f"the maxTriggers parameter must be an integer from 1 to {_MOST}, or -1 for no bound")
    return most


def _delete_after_fire(given: bool | str) -> str:
    wanted = str(given).strip().lower()
    if wanted not in _DELETE:
        raise InputError("deleteAfterFire parameter must be one of [false, true, rules].")
    return wanted
