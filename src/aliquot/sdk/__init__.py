"""What people import: functions that run here or on the platform."""

from aliquot.sdk.app import App
from aliquot.sdk.function import Function, Handle

__all__ = ["App", "Function", "Handle"]
