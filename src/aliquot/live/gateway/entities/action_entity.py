"""An action from what was put, and as it is shown: merging, limits, the computed `binary`. Nothing here is stored."""

import re

from msgspec import UNSET, UnsetType

from aliquot.core.errors import InputError
from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.images import OPTION, find_image
from aliquot.live.catalogue.needs import needs_of
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import checked, common, parameters_of, plain, shown_common, shown_pairs
from aliquot.live.gateway.entities.kinds import resolve_kind
from aliquot.live.gateway.entities.sequences import check_components, read_components
from aliquot.live.gateway.http.refusal import Refusal, malformed, too_large
from aliquot.live.gateway.settings import GatewaySettings, Range
from aliquot.live.store.records import BLACKBOX, PYTHON, SEQUENCE, Action, Exec, FullName, Limits, Pair

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")
_MAX_IMAGE_NAME_LENGTH = 1024


def build(
    name: FullName,
    put: wire.ActionPut,
    old: Action | None,
    entities: Entities,
    settings: GatewaySettings,
    at_once: int | None = None,
) -> Action:
    """The action after the PUT. Raises a `Refusal`, or `AccessDeniedError` when it is made of what is another's.

    `at_once`: how many invocations its namespace may have in flight.
    """
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
        limits=_limits(put.limits, old, settings, at_once),
        parameters=_parameters(put, code, old, settings),
        **{**common(put, old, settings), "annotations": _annotations(put, old, code.kind, settings)},
    )
    try:
        needs_of(action)
    except InputError as error:
        raise Refusal(400, str(error)) from error
    return action


def is_base64(code: str) -> bool:
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
    image = _image(put.image, settings) if kind == BLACKBOX else None
    if put.code is None and image is None:
        raise malformed(f"'code' must be a string or attachment object defined in 'exec' for '{kind}' actions")
    code = put.code or ""
    size = len(code.encode())
    if size > settings.code_bytes:
        raise too_large("exec", size, settings.code_bytes)
    return Exec(kind, code, is_base64(code), put.main or None, image)


def _image(name: str | None, settings: GatewaySettings) -> str:
    """Only what is mapped can run: nothing is pulled from anywhere."""
    if not name or len(name) > _MAX_IMAGE_NAME_LENGTH:
        raise malformed(f"'image' must be a string defined in 'exec' for '{BLACKBOX}' actions")
    if find_image(settings.images, name) is None:
        mapped = ", ".join(f"'{image.name}'" for image in settings.images) or "none"
        raise Refusal(
            400,
            f"The image '{name}' is not mapped to a runtime of this platform. Mapped are: {mapped}. "
            f"Its operator maps one with: aliquot up {OPTION} '{name}={PYTHON}'",
        )
    return name


def _annotations(put: wire.ActionPut, old: Action | None, kind: str, settings: GatewaySettings) -> tuple[Pair, ...]:
    gone = frozenset(put.del_annotations or ())
    merged = {pair.key: pair for pair in (old.annotations if old else ()) if pair.key not in gone}
    merged.update((pair.key, pair) for pair in plain(put.annotations or []))
    if old is None:
        merged.setdefault("provide-api-key", Pair("provide-api-key", False))
    merged["exec"] = Pair("exec", kind)
    return checked("Annotations", tuple(merged.values()), settings)


def _limits(put: wire.LimitsPut | None, old: Action | None, settings: GatewaySettings, at_once: int | None) -> Limits:
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
        _instances(put.instances, old, at_once),
    )


def _instances(given: int | None, old: Action | None, at_once: int | None) -> int | UnsetType:
    if given is None:
        return old.limits.instances if old else UNSET
    if given < 1:
        raise Refusal(400, f"instances {given} below allowed threshold of 1")
    if at_once is not None and given > at_once:
        text = f"Max action instance concurrency must not exceed your namespace concurrency of {at_once}."
        raise Refusal(400, text)
    return given


# --- as shown ------------------------------------------------------------------------------------------------


def shown(action: Action, *, code: bool = True) -> wire.ActionView:
    return wire.ActionView(
        **shown_common(action),
        exec=_shown_exec(action.exec, code=code),
        parameters=shown_pairs(action.parameters),
        limits=_shown_limits(action.limits),
    )


def _shown_exec(stored: Exec, *, code: bool) -> wire.ExecView:
    if stored.kind == SEQUENCE:
        return wire.ExecView(stored.kind, components=[str(component) for component in stored.components])
    return wire.ExecView(
        stored.kind,
        stored.binary,
        stored.code if code and (stored.code or stored.image is None) else UNSET,
        UNSET if stored.main is None else stored.main,
        UNSET if stored.image is None else stored.image,
    )


def shown_in_list(action: Action) -> wire.ActionItem:
    exec_ = wire.ExecItem(action.exec.binary)
    return wire.ActionItem(**shown_common(action), exec=exec_, limits=_shown_limits(action.limits))


def _shown_limits(limits: Limits) -> wire.LimitsView:
    return wire.LimitsView(limits.timeout, limits.memory, limits.logs, limits.concurrency, limits.instances)
