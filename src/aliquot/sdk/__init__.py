"""What people import: functions that run here or on the platform."""

from aliquot.sdk.app import App
from aliquot.sdk.function import Function, Handle
from aliquot.sdk.session import Session

__all__ = ["App", "Function", "Handle", "Session"]
