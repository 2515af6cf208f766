"""Tells the SDK, where a function uses it, that it is inside a sandbox, and what there is to use there."""

from __future__ import annotations

import sys
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .side import Side

_SDK = "aliquot.sdk.inside"


def tell(side: Side | None, desk: str | None) -> None:
    """The side channel, and the name by which the gateway knows it."""
    host = _host()
    if host is not None and side is not None:
        host.side, host.desk = side, desk or ""


def tell_group(group: Any) -> None:  # noqa: ANN401 - `Group`, which imports this
    host = _host()
    if host is not None:
        host.group = group


def registered() -> dict[str, Any]:
    """The apps whose modules are loaded, for pickles: each function of a group has its own."""
    portable = sys.modules.get("aliquot.sdk.portable")
    return dict(portable.registered) if portable is not None else {}


def register(apps: dict[str, Any]) -> None:
    portable = sys.modules.get("aliquot.sdk.portable")
    if portable is not None:
        portable.registered.clear()
        portable.registered.update(apps)


def _host() -> Any:  # noqa: ANN401 - the SDK's, which is not of this package
    """Loaded by the zygote for functions of the SDK; others have no use for it."""
    module = sys.modules.get(_SDK)
    return getattr(module, "host", None)
