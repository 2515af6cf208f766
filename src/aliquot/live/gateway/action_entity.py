"""An action from what was put, and as it is shown: merging, limits, the computed `binary`. Nothing here is stored."""

import re

from msgspec import UNSET

from aliquot.core.errors import InputError
from aliquot.live.entities import Entities
from aliquot.live.gateway import wire
from aliquot.live.gateway.entity import checked, common, parameters_of, plain, shown_common, shown_pairs
from aliquot.live.gateway.kinds import resolve_kind
from aliquot.live.gateway.refusal import Refusal, malformed, too_large
from aliquot.live.gateway.sequences import check_components, read_components
from aliquot.live.gateway.settings import GatewaySettings, Range
from aliquot.live.needs import needs_of
from aliquot.live.records import SEQUENCE, Action, Exec, FullName, Limits, Pair

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")


def build(
    name: FullName, put: wire.ActionPut, old: Action | None, entities: Entities, settings: GatewaySettings
) -> Action:
    """The action after the PUT. Raises a `Refusal`, or `NotEntitled` when it is made of what is another's."""
    if put.exec is not None:
        code = _exec(put.exec, name.namespace, settings)
        if code.kind == SEQUENCE:
            check_components(entities, name, code.components, settings.sequence_length)
    elif old is not None:
        code = old.exec
    else:
        raise Refusal(400, "exec undefined")
    action = Action(
        namespace=name.namespace,
        name=name.name,
        exec=code,
        limits=_limits(put.limits, old, settings),
        parameters=_parameters(put, code, old, settings),
        **{**common(put, old, settings), "annotations": _annotations(put, old, code.kind, settings)},
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


def _parameters(put: wire.ActionPut, code: Exec, old: Action | None, settings: GatewaySettings) -> tuple[Pair, ...]:
    """A sequence has its components for parameters, and no others; they do not outlive it."""
    if code.kind == SEQUENCE:
        return (Pair("_actions", [str(component) for component in code.components]),)
    kept = old.parameters if old is not None and old.exec.kind != SEQUENCE else ()
    return parameters_of(put.parameters, kept, settings)


def _exec(put: wire.ExecPut, caller: str, settings: GatewaySettings) -> Exec:
    kind = resolve_kind(put.kind, nodejs=settings.nodejs)
    if kind == SEQUENCE:
        return Exec(SEQUENCE, components=read_components(put.components, caller))
    if put.code is None:
        raise malformed(f"'code' must be a string or attachment object defined in 'exec' for '{kind}' actions")
    size = len(put.code.encode())
    if size > settings.code_bytes:
        raise too_large("exec", size, settings.code_bytes)
    return Exec(kind, put.code, is_binary(put.code), put.main or None)


def _annotations(put: wire.ActionPut, old: Action | None, kind: str, settings: GatewaySettings) -> tuple[Pair, ...]:
    gone = frozenset(put.del_annotations or ())
    merged = {pair.key: pair for pair in (old.annotations if old else ()) if pair.key not in gone}
    merged.update((pair.key, pair) for pair in plain(put.annotations or []))
    if old is None:
        merged.setdefault("provide-api-key", Pair("provide-api-key", False))
    merged["exec"] = Pair("exec", kind)
    return checked("Annotations", tuple(merged.values()), settings)


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
    return wire.Action(
        **shown_common(action),
        exec=_shown_exec(action.exec, code=code),
        parameters=shown_pairs(action.parameters),
        limits=_shown_limits(action.limits),
    )


def _shown_exec(stored: Exec, *, code: bool) -> wire.Exec:
    if stored.kind == SEQUENCE:
        return wire.Exec(stored.kind, components=[str(component) for component in stored.components])
    return wire.Exec(
        stored.kind,
        stored.binary,
        stored.code if code else UNSET,
        UNSET if stored.main is None else stored.main,
        UNSET if stored.image is None else stored.image,
    )


def shown_in_list(action: Action) -> wire.ActionItem:
    exec_ = wire.ExecItem(action.exec.binary)
    return wire.ActionItem(**shown_common(action), exec=exec_, limits=_shown_limits(action.limits))


def _shown_limits(limits: Limits) -> wire.Limits:
    return wire.Limits(limits.timeout, limits.memory, limits.logs, limits.concurrency)
