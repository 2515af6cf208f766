"""Parse sizes, times and shares strictly: every error names the argument and what it takes."""

import re
from math import ceil, isfinite
from typing import TypeGuard

from aliquot.runtime.units import GIB, KIB, MIB
from aliquot.sdk.errors import UsageError

_SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 2**40}
_TIMES_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX = 2**50
MAX_RETRIES = 10
MAX_WARM = 100
_MIN_CRON_FIELDS, _MAX_CRON_FIELDS = 5, 6  # six begin with seconds


def read_mib(value: object, argument: str) -> int:
    """Parse a size, such as `"2GiB"`, `"512 MB"` or a number of MiB. It is rounded up to whole MiB."""
    if isinstance(value, str):
        amount, unit = _split(value)
        size = amount * _SIZES.get(unit.upper(), 0)
    else:
        size = value * MIB if isinstance(value, int) and _is_number(value) else 0
    if not 0 < size < _MAX:
        raise UsageError(f"{argument}: {value!r} is not a size; it takes one such as '2GiB', or a whole number of MiB")
    return ceil(size / MIB)


def read_ms(value: object, argument: str) -> int:
    """Parse a time, such as `"200ms"`, `"1.5s"`, `"5m"`, `"1h"`, `"2d"` or a number of seconds."""
    if isinstance(value, str):
        amount, unit = _split(value)
        time_ms = amount * _TIMES_MS.get(unit, 0)
    else:
        time_ms = value * 1000 if _is_number(value) else 0
    if not 1 <= time_ms < _MAX:
        takes = "it takes one of a millisecond or more, such as '200ms' or '60s', or a number of seconds"
        raise UsageError(f"{argument}: {value!r} is not a time; {takes}")
    return round(time_ms)


def read_share(value: object, argument: str) -> float:
    """Parse a share of one GPU, or a number of whole GPUs. The server checks the step size."""
    if not _is_number(value) or not (0 < value <= 1 or (1 < value < _MAX and value == int(value))):
        takes = "it takes a number above 0, at most 1, or a whole number of GPUs, such as 2"
        raise UsageError(f"{argument}: {value!r} is not a share of a GPU; {takes}")
    return float(value)


def read_positive(value: object, argument: str) -> float:
    if not _is_number(value) or not 0 < value < _MAX:
        raise UsageError(f"{argument}: {value!r} does not fit; it takes a number above 0")
    return float(value)


def read_names(values: object, argument: str, example: str = "numpy") -> tuple[str, ...]:
    """Check a list of names. A single text is a common mistake, and is refused."""
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise UsageError(f"{argument}: {values!r} is not a list; it takes one such as [{example!r}]")
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{argument}: {value!r} is not a name; it takes a list such as [{example!r}]")
    return tuple(values)


def read_retries(value: object, argument: str) -> int:
    """Check how often a function may run again."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_RETRIES:
        raise UsageError(f"{argument}: {value!r} does not fit; it takes a whole number from 0 to {MAX_RETRIES}")
    return value


def read_warm(value: object, argument: str) -> int:
    """Check how many sandboxes are held ready."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_WARM:
        raise UsageError(f"{argument}: {value!r} does not fit; it takes a whole number from 0 to {MAX_WARM}")
    return value


def read_schedule(value: object, argument: str) -> str:
    """Check the number of a schedule's fields. The platform checks the fields."""
    fields = value.split() if isinstance(value, str) else ()
    is_alias = len(fields) == 1 and fields[0].startswith("@")  # such as @hourly
    if not isinstance(value, str) or not (is_alias or _MIN_CRON_FIELDS <= len(fields) <= _MAX_CRON_FIELDS):
        raise UsageError(f"{argument}: {value!r} is not a schedule; it takes one such as '*/5 * * * *', in UTC")
    return value


def read_variables(values: object, argument: str) -> tuple[tuple[str, str], ...]:
    """Check environment variables. A number is a common mistake, and is refused."""
    if not hasattr(values, "items"):
        raise UsageError(f"{argument}: {values!r} is not a mapping; it takes one such as {{'MODE': 'fast'}}")
    for name, value in values.items():
        if not isinstance(name, str) or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"{argument}: {name!r} is not a variable's name; it takes one such as 'MODE'")
        if not isinstance(value, str):
            raise UsageError(f"{argument}: the value of {name} is {value!r}; it takes text, such as {str(value)!r}")
    return tuple(values.items())


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _split(text: str) -> tuple[float, str]:
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*", text)
    return (float(match[1]), match[2]) if match else (0, "")
