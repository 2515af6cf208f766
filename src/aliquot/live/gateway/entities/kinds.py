"""The runtime kinds of this platform, and the aliases that older clients use."""

from msgspec import Struct
from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.live.catalogue.images import OPTION, RuntimeImage
from aliquot.live.gateway.http.refusal import Refusal, malformed
from aliquot.live.store.records import BLACKBOX, KERNEL, NODEJS, PYTHON, SEQUENCE, WORKFLOW


class RuntimeInfo(Struct, frozen=True, rename="camel"):
    """A runtime, as `GET /` lists it."""

    kind: str
    default: bool
    deprecated: bool
    image: str
    attached: bool
    require_main: bool


# Earlier versions that OpenWhisk still lists run on the version that is here. Responses show the kind that runs.
_ALIASES = {
    **dict.fromkeys(("python:3", "python:3.10", "python:default"), PYTHON),
    **dict.fromkeys(("nodejs:18", "nodejs:default"), NODEJS),
}


def kinds(*, nodejs: bool) -> list[str]:
    return sorted([PYTHON, NODEJS] if nodejs else [PYTHON])


def runtimes(*, nodejs: bool) -> dict[str, list[RuntimeInfo]]:
    listed = {}
    for kind in kinds(nodejs=nodejs):
        family = kind.partition(":")[0]
        listed[family] = [RuntimeInfo(kind, True, False, f"aliquot/{kind.replace(':', '-')}", False, False)]
    return listed


def known_kind(kind: str, *, nodejs: bool) -> str | None:
    """Return the kind that runs here under this name, or None."""
    kind = kind.strip().lower()
    resolved = _ALIASES.get(kind, kind)
    return resolved if resolved in kinds(nodejs=nodejs) else None


def resolve_kind(kind: str | None, *, nodejs: bool) -> str:
    """Return the kind that runs an action that was put with this kind. Raises a `Refusal`."""
    if kind is None:
        raise malformed("'kind' must be a string defined in 'exec'")
    kind = kind.strip().lower()
    if kind in {SEQUENCE, BLACKBOX, WORKFLOW, KERNEL}:
        return kind
    resolved = known_kind(kind, nodejs=nodejs)
    if resolved is None:
        values = ", ".join(f"'{name}'" for name in kinds(nodejs=nodejs))
        text = f"The specified runtime '{kind}' is not supported by this platform. Valid values are: {values}."
        raise Refusal(400, text)
    return resolved


def check_image(image: RuntimeImage, *, nodejs: bool) -> RuntimeImage:
    """Return the operator's image with the kind that runs it. Raises `InputError`."""
    kind = known_kind(image.kind, nodejs=nodejs)
    if kind is None:
        raise InputError(f"{OPTION}: '{image.kind}' does not run here; it takes {', '.join(kinds(nodejs=nodejs))}")
    if image.requirements and kind != PYTHON:
        raise InputError(f"{OPTION}: requirements are for {PYTHON}; {image.name} is {kind}")
    return replace(image, kind=kind)
