"""An action from what was put, and as it is shown: merging, limits, the computed `binary`. Nothing here is stored."""

import re
import time
from typing import Any

import msgspec

from aliquot.core.errors import InputError
from aliquot.live.gateway import wire
from aliquot.live.gateway.kinds import resolve_kind
from aliquot.live.gateway.refusal import Refusal, malformed, too_large
from aliquot.live.gateway.settings import GatewaySettings, Range
from aliquot.live.needs import needs_of
from aliquot.live.records import Action, Exec, Limits, Pair

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")
_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", re.ASCII)


def build(namespace: str, name: str, put: wire.ActionPut, old: Action | None, settings: GatewaySettings) -> Action:
    """The action after the PUT. Raises a `Refusal`."""
    if put.exec is None and old is None:
        raise Refusal(400, "exec undefined")
    code = _exec(put.exec, settings) if put.exec is not None else None
    if code is None:
        assert old is not None  # noqa: S101 - see above
        code = old.exec
    parameters = old.parameters if old else ()
    if put.parameters is not None:
        parameters = _pairs(put.parameters)
        _check_size("Parameters", parameters, settings.parameters_bytes)
    annotations = _annotations(put, old, code.kind)
    _check_size("Annotations", annotations, settings.parameters_bytes)
    action = Action(
        namespace,
        name,
        _version(put.version, old),
        code,
        _limits(put.limits, old, settings),
        parameters=parameters,
        annotations=annotations,
        publish=put.publish if put.publish is not None else bool(old and old.publish),
        updated=time.time_ns() // 1_000_000,
    )
    try:
        needs_of(action)
    except InputError as error:
        raise Refusal(400, str(error)) from error
    return action


def is_binary(code: str) -> bool:
    """Whether it is base64: what the client says does not count."""
    code = code.strip()
    return len(code) % 4 == 0 and _BASE64.fullmatch(code) is not None


def _exec(put: wire.ExecPut, settings: GatewaySettings) -> Exec:
    kind = resolve_kind(put.kind, nodejs=settings.nodejs)
    if put.code is None:
        raise malformed(f"'code' must be a string or attachment object defined in 'exec' for '{kind}' actions")
    size = len(put.code.encode())
    if size > settings.code_bytes:
        raise too_large("exec", size, settings.code_bytes)
    return Exec(kind, put.code, is_binary(put.code), put.main or None)


def _pairs(put: list[wire.PairPut]) -> tuple[Pair, ...]:
    return tuple({pair.key: Pair(pair.key, pair.value, bool(pair.init)) for pair in put}.values())


def _annotations(put: wire.ActionPut, old: Action | None, kind: str) -> tuple[Pair, ...]:
    gone = frozenset(put.del_annotations or ())
    merged = {pair.key: pair for pair in (old.annotations if old else ()) if pair.key not in gone}
    merged.update((pair.key, Pair(pair.key, pair.value)) for pair in _pairs(put.annotations or []))
    if old is None:
        merged.setdefault("provide-api-key", Pair("provide-api-key", False))
    merged["exec"] = Pair("exec", kind)
    return tuple(merged.values())


def _check_size(field: str, pairs: tuple[Pair, ...], allowed: int) -> None:
    size = sum(len(pair.key.encode()) + len(msgspec.json.encode(pair.value)) for pair in pairs)
    if size > allowed:
        raise too_large(field, size, allowed)


def _version(given: str | None, old: Action | None) -> str:
    if given is not None:
        match = _VERSION.fullmatch(given.strip())
        if match is None or not any(int(part or 0) for part in match.groups()):
            raise malformed(f"bad semantic version {given}")
        return ".".join(str(int(part or 0)) for part in match.groups())
    if old is None:
        return "0.0.1"
    major, minor, patch = old.version.split(".")
    return f"{major}.{minor}.{int(patch) + 1}"


def _limits(put: wire.LimitsPut | None, old: Action | None, settings: GatewaySettings) -> Limits:
    put = put or wire.LimitsPut()

    def pick(field: str, allowed: Range, what: str, unit: str = "") -> int:
        given: int | None = getattr(put, field)
        if given is None:
            return getattr(old.limits, field) if old else allowed.usual
        if given > allowed.most:
            raise Refusal(400, f"{what} {given}{unit} exceeds allowed threshold of {allowed.most}{unit}")
        if given < allowed.least:
            raise Refusal(400, f"{what} {given}{unit} below allowed threshold of {allowed.least}{unit}")
        return given

    return Limits(
        pick("timeout", settings.timeout_ms, "duration", " milliseconds"),
        pick("memory", settings.memory_mb, "memory size", " MB"),
        pick("logs", settings.logs_mb, "log size", " MB"),
        pick("concurrency", settings.concurrency, "concurrency"),
    )


# --- as shown ------------------------------------------------------------------------------------------------


def shown(action: Action, *, code: bool = True) -> wire.Action:
    stored = action.exec
    return wire.Action(
        **_common(action),
        exec=wire.Exec(
            stored.kind,
            stored.binary,
            stored.code if code else msgspec.UNSET,
            msgspec.UNSET if stored.main is None else stored.main,
        ),
        parameters=_shown_pairs(action.parameters),
    )


def shown_in_list(action: Action) -> wire.ActionItem:
    return wire.ActionItem(**_common(action), exec=wire.ExecItem(action.exec.binary))


def _common(action: Action) -> dict[str, Any]:
    package, _, name = action.name.rpartition("/")
    limits = action.limits
    return {
        "namespace": f"{action.namespace}/{package}" if package else action.namespace,
        "name": name,
        "version": action.version,
        "publish": action.publish,
        "annotations": _shown_pairs(action.annotations),
        "limits": wire.Limits(limits.timeout, limits.memory, limits.logs, limits.concurrency),
        "updated": action.updated,
    }


def _shown_pairs(pairs: tuple[Pair, ...]) -> list[wire.Pair]:
    return [wire.Pair(pair.key, pair.value, pair.init or msgspec.UNSET) for pair in pairs]
