"""The shell of `aliquot.testing.workflow`, and functions for it."""

from aliquot.testing.workflow import (
    FOREVER,
    SECRET,
    START,
    After,
    NeverEndsError,
    WorkflowShell,
    compiled,
    replayed,
)
from aliquot.workflow.errors import StateError

Shell = WorkflowShell
__all__ = ["FOREVER", "SECRET", "START", "After", "NeverEndsError", "Shell", "compiled", "error", "replayed"]


def error(name, cause=""):
    """Return a function that fails."""

    def fail(*_):
        raise StateError(name, cause)

    return fail
