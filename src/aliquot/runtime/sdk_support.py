"""Connect the SDK with the sandbox: make `import aliquot` work there, and pass it the control channel and the group."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from .control_channel import ControlChannel
    from .group import FunctionGroup

_PACKAGE = Path(__file__).resolve().parent.parent
_SANDBOX_MODULE = "aliquot.sdk.sandbox"
_APPS_MODULE = "aliquot.sdk.portable"


class AliquotFinder(MetaPathFinder):
    """Finds this very package for `import aliquot`, where it is not installed.

    It comes first: the server and its sandboxes must have the same version, whatever else is installed.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "aliquot":
            return None
        return importlib.util.spec_from_file_location(
            fullname, _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
        )


def install_finder() -> None:
    sys.meta_path.insert(0, AliquotFinder())


def set_channel(channel: ControlChannel | None, token: str | None) -> None:
    """Give the SDK the control channel, and the token by which the gateway knows it."""
    sandbox = _sandbox()
    if sandbox is not None and channel is not None:
        sandbox.channel, sandbox.token = channel, token or ""


def set_group(group: FunctionGroup) -> None:
    sandbox = _sandbox()
    if sandbox is not None:
        sandbox.group = group


def loaded_apps() -> dict[str, Any]:
    """Return the apps whose modules are loaded, which pickles refer to. Each function of a group has its own."""
    portable = sys.modules.get(_APPS_MODULE)
    return dict(portable.registered) if portable is not None else {}


def set_apps(apps: dict[str, Any]) -> None:
    portable = sys.modules.get(_APPS_MODULE)
    if portable is not None:
        portable.registered.clear()
        portable.registered.update(apps)


def _sandbox() -> Any:  # noqa: ANN401 - belongs to the SDK, which this package does not import
    """Return the SDK's `sandbox` object. The zygote has loaded it for functions that use the SDK."""
    return getattr(sys.modules.get(_SANDBOX_MODULE), "sandbox", None)
