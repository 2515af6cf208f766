"""The SDK: functions that run in this process or on the platform.

Its modules are imported when their names are used, because commands and the server need only a few of them.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than that of this package
if TYPE_CHECKING:
    from aliquot.sdk.app import App
    from aliquot.sdk.chains import chain
    from aliquot.sdk.classes import enter, exit  # noqa: A004 - `aliquot.exit`
    from aliquot.sdk.errors import BusyError, FunctionError, Refused, RemoteError, SdkError
    from aliquot.sdk.function import Function, Handle
    from aliquot.sdk.session import Session
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
    "chain",
    "enter",
    "exit",
    "parallel",
    "sleep",
    "task",
    "wait_for",
]

_MODULES = {
    "App": "app",
    "BusyError": "errors",
    "Function": "function",
    "FunctionError": "errors",
    "Handle": "function",
    "Refused": "errors",
    "RemoteError": "errors",
    "Retry": "workflow.options",
    "SdkError": "errors",
    "Session": "session",
    "Workflow": "workflow.decorator",
    "chain": "chains",
    "enter": "classes",
    "exit": "classes",
    "parallel": "workflow.here",
    "sleep": "workflow.here",
    "task": "workflow.task",
    "wait_for": "workflow.here",
}


def __getattr__(name: str) -> object:
    """Import the module that has the name."""
    if name not in _MODULES:
        raise AttributeError(f"module 'aliquot.sdk' has no attribute {name!r}")
    return getattr(import_module(f"aliquot.sdk.{_MODULES[name]}"), name)
