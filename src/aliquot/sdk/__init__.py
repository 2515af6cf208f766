"""The SDK: functions that run in this process or on the platform."""

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
