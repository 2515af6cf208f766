"""The SDK: functions that run in this process or on the platform."""

from aliquot.sdk.app import App
from aliquot.sdk.function import Function, Handle
from aliquot.sdk.session import Session

__all__ = ["App", "Function", "Handle", "Session"]
