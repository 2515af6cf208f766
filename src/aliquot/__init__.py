"""Aliquot: serverless functions on shared GPUs. docs/architecture.md explains the code.

User files import this package, locally and in the sandbox. It therefore imports nothing but the standard library. The
modules of the SDK are imported when their names are used, because commands and the server need only a few of them.
"""

from importlib import import_module

from aliquot.version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than that of this package
if TYPE_CHECKING:
    from aliquot.sdk.app import App
    from aliquot.sdk.chains import chain
    from aliquot.sdk.classes import enter, exit  # noqa: A004 - `aliquot.exit`
    from aliquot.sdk.errors import BusyError, FunctionError, Refused, RemoteError, SdkError
    from aliquot.sdk.function import Function, Handle
    from aliquot.sdk.session import Session
    from aliquot.sdk.volumes import volume
    from aliquot.sdk.workflow.decorator import Workflow
    from aliquot.sdk.workflow.here import parallel, sleep, wait_for
    from aliquot.sdk.workflow.options import Retry
    from aliquot.sdk.workflow.task import task

__all__ = [
    "App",
    "BusyError",
    "Function",
    "FunctionError",
    "Handle",
    "Refused",
    "RemoteError",
    "Retry",
    "SdkError",
    "Session",
    "Workflow",
    "__version__",
    "chain",
    "enter",
    "exit",
    "parallel",
    "sleep",
    "task",
    "volume",
    "wait_for",
]

_NAMES = {  # by module of the SDK
    "app": ("App",),
    "chains": ("chain",),
    "classes": ("enter", "exit"),
    "errors": ("BusyError", "FunctionError", "Refused", "RemoteError", "SdkError"),
    "function": ("Function", "Handle"),
    "session": ("Session",),
    "volumes": ("volume",),
    "workflow.decorator": ("Workflow",),
    "workflow.here": ("parallel", "sleep", "wait_for"),
    "workflow.options": ("Retry",),
    "workflow.task": ("task",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import the module of the SDK that has the name."""
    if name not in _MODULES:
        raise AttributeError(f"module 'aliquot' has no attribute {name!r}")
    return getattr(import_module(f"aliquot.sdk.{_MODULES[name]}"), name)
