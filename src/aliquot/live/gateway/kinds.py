"""The kinds of code that run here, and the names that old clients have for them."""

from msgspec import Struct

from aliquot.live.gateway.refusal import Refusal, malformed
from aliquot.live.records import NODEJS, PYTHON, SEQUENCE


class Runtime(Struct, frozen=True, rename="camel"):
    """As `GET /` lists it."""

    kind: str
    default: bool
    deprecated: bool
    image: str
    attached: bool
    require_main: bool


_ALIASES = {"python:3": PYTHON, "python:default": PYTHON, "nodejs:default": NODEJS}


def kinds(*, nodejs: bool) -> list[str]:
    return sorted([PYTHON, NODEJS] if nodejs else [PYTHON])


def runtimes(*, nodejs: bool) -> dict[str, list[Runtime]]:
    listed = {}
    for kind in kinds(nodejs=nodejs):
        family = kind.partition(":")[0]
        listed[family] = [Runtime(kind, True, False, f"aliquot/{kind.replace(':', '-')}", False, False)]
    return listed


def resolve_kind(kind: str | None, *, nodejs: bool) -> str:
    if not kind:
        raise malformed("'kind' must be a string defined in 'exec'")
    kind = kind.strip().lower()
    if kind == SEQUENCE:
        return kind
    resolved = _ALIASES.get(kind, kind)
    known = kinds(nodejs=nodejs)
    if resolved not in known:
        values = ", ".join(f"'{name}'" for name in known)
        text = f"The specified runtime '{kind}' is not supported by this platform. Valid values are: {values}."
        raise Refusal(400, text)
    return resolved
