"""Aliquot: serverless functions on shared GPUs. docs/architecture.md explains the code.

User files import this package, locally and in the sandbox. It therefore imports nothing but the standard library.
"""

from aliquot.version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than that of this package
if TYPE_CHECKING:
    from aliquot.sdk import (
        App,
        BusyError,
        Function,
        FunctionError,
        Handle,
        Refused,
        RemoteError,
        Retry,
        SdkError,
        Session,
        Workflow,
        chain,
        enter,
        exit,  # noqa: A004 - `aliquot.exit`
        parallel,
        sleep,
        task,
        wait_for,
    )

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
    "wait_for",
]


def __getattr__(name: str) -> object:
    """Import the SDK when one of its names is used. The server's own processes do not use it."""
    if name not in __all__:
        raise AttributeError(f"module 'aliquot' has no attribute {name!r}")
    from aliquot import sdk  # noqa: PLC0415 - later, see above

    return getattr(sdk, name)
