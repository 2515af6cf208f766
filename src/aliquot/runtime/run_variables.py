"""The environment variables that change with every run, such as the activation's id.

The C library's `setenv` keeps every value that it was ever given, because a program may still point to it. A value that
is new with every run would fill the sandbox's memory. So each variable has a buffer that is part of the environment and
is overwritten. This is faster, too.
"""

from __future__ import annotations

import ctypes
import os

_MIN_VALUE_BYTES = 64
_TRACE = ("TRACEPARENT", "TRACESTATE")  # hold for one run, because the next one may be of another trace
_putenv = ctypes.CDLL(None).putenv


class RunVariables:
    """Sets environment variables, as the function sees them in `os.environ` and its child processes inherit them."""

    def __init__(self) -> None:
        self._variables: dict[str, _BufferedVariable] = {}
        self._traced = False  # the variables of a trace have values

    def set(self, values: dict[str, str]) -> None:
        """Set these variables. The others keep their values, but those of a trace are emptied."""
        traced = _TRACE[0] in values
        if self._traced:
            values = {**{name: "" for name in _TRACE if name in self._variables}, **values}
        self._traced = traced
        environment = getattr(os.environ, "_data", None)  # the values as bytes; there is no other way to set them
        if environment is None:  # the function has replaced `os.environ`
            os.environ.update(values)
            return
        for name, value in values.items():
            variable = self._variables.get(name)
            if variable is None:
                variable = self._variables[name] = _BufferedVariable(name)
            variable.set(value, environment)


class _BufferedVariable:
    """One variable, whose value is in a buffer of its own."""

    __slots__ = ("_begin", "_buffer", "_key", "_size", "_value", "_view")

    def __init__(self, name: str) -> None:
        self._key = os.fsencode(name)
        self._begin = len(self._key) + 1
        self._value = b""
        self._size = 0  # of the longest value that fits, with the zero at its end

    def set(self, text: str, environment: dict[bytes, bytes]) -> None:
        value = text.encode("utf-8", "surrogateescape")
        if environment.get(self._key) is not self._value:  # the first time, or the function has changed it
            self._allocate(len(value))
        elif value == self._value:
            return
        elif len(value) >= self._size:
            self._allocate(len(value))
        end = self._begin + len(value)
        self._view[end] = 0
        self._view[self._begin : end] = value
        self._value = environment[self._key] = value

    def _allocate(self, size: int) -> None:
        """Put the buffer into the environment, a larger one if the value does not fit."""
        if size >= self._size:
            self._size = max(_MIN_VALUE_BYTES, 2 * size)
            self._buffer = ctypes.create_string_buffer(self._key + b"=", self._begin + self._size)
            self._view = memoryview(self._buffer).cast("B")
        _putenv(self._buffer)
