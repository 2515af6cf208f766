"""`aliquot up --limit NAME=VALUE`: the gateway's settings as an operator writes them."""

from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields, replace

from aliquot.config import parse_assignments, parse_size
from aliquot.core.errors import InputError
from aliquot.live.gateway.settings import GatewaySettings, Range

# Said otherwise, found out, or fixed: a sandbox runs one call at a time.
_NOT_LIMITS = {"api_host", "nodejs", "images", "sessions", "concurrency"}


def parse_limits(texts: list[str], key: str) -> GatewaySettings:
    """`payload_bytes=128MiB`, `timeout_ms.most=600000`, `invocations_per_minute=60` or `=none`."""
    settings = GatewaySettings()
    known = {field.name: field.type for field in fields(GatewaySettings) if field.name not in _NOT_LIMITS}
    for name, text in parse_assignments(texts, key).items():
        field, dot, part = name.partition(".")
        kind = known.get(field)
        if kind is None or (kind is Range) != bool(dot) or (dot and part not in Range.__struct_fields__):
            raise InputError(f"{key}: there is no {name}; there are {', '.join(_names(known))}")
        if dot:
            value: Any = replace(getattr(settings, field), **{part: _read(int, text, name, key)})
        else:
            value = _read(kind, text, name, key)
        settings = replace(settings, **{field: value})
    for field, kind in known.items():
        if kind is Range:
            _check(field, getattr(settings, field), key)
    return settings


def _names(known: dict[str, Any]) -> list[str]:
    parts = ", ".join(Range.__struct_fields__)
    return [f"{name}.({parts})" if kind is Range else name for name, kind in known.items()]


def _read(kind: Any, text: str, name: str, key: str) -> Any:  # noqa: ANN401 - of the setting's own type
    if name.endswith("_bytes"):
        return parse_size(text, f"{key}: {name}")

    class Setting(Struct):
        value: kind

    try:
        value = convert({"value": None if text == "none" else text}, Setting, strict=False).value
    except ValidationError as error:
        raise InputError(f"{key}: {name}: '{text}' does not fit: {error}") from error
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < float("inf"):
        raise InputError(f"{key}: {name}: '{text}' does not fit: it takes a number from 0 on")
    return value


def _check(name: str, limits: Range, key: str) -> None:
    if not limits.least <= limits.usual <= limits.most:
        raise InputError(
            f"{key}: {name}: least ({limits.least}), usual ({limits.usual}) and most ({limits.most}) are not in order"
        )
