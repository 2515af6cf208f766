"""What a function needs, read from its annotations: so that an unmodified OpenWhisk client can state it.

Every annotation that means something to the platform is in the table `ANNOTATIONS`, with what it takes. All others are
the owner's own and are left alone.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET, Struct

from aliquot.config import MAX_WEIGHT, MIN_WEIGHT, parse_size
from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec
from aliquot.core.units import MIB
from aliquot.live.store.records import Action

_MOST_LISTED = 256
_LONGEST_TEXT = 1024
_LEAST_SHARE, _SHARE_STEP = 0.01, 0.005  # an eighth of a GPU is 0.125
_MOST_GPUS = 1024
_TOLERANCE = 1e-6  # 0.29 is no whole number of steps in binary
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Needs(Struct, frozen=True):
    """Field names are the annotations' with `_` for `-`, and units where they have one."""

    gpu_share: float = 0  # 0: no GPU, the function runs on the node's `cpu` device; above 1: whole GPUs
    gpu_memory_bytes: int = 0  # of each
    gpu_share_limit: float | None = None  # how far it may stretch when the device has room
    gpu_memory_limit_bytes: int | None = None
    latency_slo_s: float | None = None
    cost_slo: float | None = None
    weight: float = 1
    batch: int = 1
    datasets: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    rerun: bool = False  # may run again after a crash
    sdk: bool = False  # the code is a module of `aliquot.App` functions
    group: str = ""  # whose functions share its sandboxes; empty: it has its own

    @property
    def memory_limit_bytes(self) -> int:
        """Of the device's memory: what was asked for, unless it said that it may go further."""
        return self.gpu_memory_bytes if self.gpu_memory_limit_bytes is None else self.gpu_memory_limit_bytes

    def function(self, name: str, *, host_bytes: int = 0) -> FunctionSpec:
        """As the core knows it."""
        return FunctionSpec(
            name,
            memory_bytes=self.gpu_memory_bytes,
            share=self.gpu_share,
            weight=self.weight,
            host_bytes=host_bytes,
            share_limit=self.gpu_share_limit,
            datasets=self.datasets,
        )


def needs_of(action: Action) -> Needs:
    """Raises an `InputError` that names the annotation and what it takes."""
    values: dict[str, Any] = {}
    for pair in action.annotations:
        if (annotation := ANNOTATIONS.get(pair.key)) is None or pair.value is None:
            continue
        value = annotation.read(pair.value)
        if value is UNSET:
            raise InputError(f"annotation {pair.key}: it takes {annotation.takes}, not {_shown(pair.value)}")
        values[annotation.field] = value
    needs = Needs(**values)
    _check(needs)
    return needs


def _check(needs: Needs) -> None:
    if not needs.gpu_share:
        for name in ("gpu-memory", "gpu-share-limit", "gpu-memory-limit"):
            if getattr(needs, ANNOTATIONS[name].field):
                raise InputError(f"annotation {name}: it needs gpu-share beside it, such as 0.25")
    if needs.gpu_share_limit is not None and needs.gpu_share_limit < needs.gpu_share:
        raise InputError(f"annotation gpu-share-limit: it takes at least gpu-share, which is {needs.gpu_share:g}")
    if needs.gpu_share_limit is not None and needs.gpu_share_limit > max(1, needs.gpu_share):
        most = max(1, needs.gpu_share)
        raise InputError(f"annotation gpu-share-limit: it takes at most {most:g}: nobody borrows a second GPU")
    if needs.gpu_memory_limit_bytes is not None and needs.gpu_memory_limit_bytes < needs.gpu_memory_bytes:
        bytes_ = needs.gpu_memory_bytes
        raise InputError(f"annotation gpu-memory-limit: it takes at least gpu-memory, which is {bytes_} bytes")


# --- readers: a value, or UNSET when it does not fit ---------------------------------------------------------


def _number(low: float, high: float, *, above: bool = False) -> Callable[[object], object]:
    def read(value: object) -> object:
        if isinstance(value, str):  # wsk sends what it cannot read as JSON as text
            try:
                value = float(value)
            except ValueError:
                return UNSET
        if not isinstance(value, int | float) or isinstance(value, bool):
            return UNSET
        return float(value) if low <= value <= high and not (above and value == low) else UNSET

    return read


def _share(value: object) -> object:
    """What is between two steps is refused, as is a part of a GPU beyond a whole one: nothing is rounded silently."""
    number = _number(0, _MOST_GPUS)(value)
    if not isinstance(number, float) or 0 < number < _LEAST_SHARE:
        return UNSET
    step = 1 if number > 1 else _SHARE_STEP
    return number if abs(number / step - round(number / step)) < _TOLERANCE else UNSET


def _share_limit(value: object) -> object:
    return UNSET if (share := _share(value)) == 0 else share


def _memory(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_size(value, "")
        except InputError:
            return UNSET
    megabytes = _number(0, 2**30)(value)
    return round(megabytes * MIB) if isinstance(megabytes, float) else UNSET


def _milliseconds(value: object) -> object:
    number = _number(0, 1e9, above=True)(value)
    return number / 1000 if isinstance(number, float) else UNSET


def _count(value: object) -> object:
    number = _number(1, 65_536)(value)
    return int(number) if isinstance(number, float) and number.is_integer() else UNSET


def _flag(value: object) -> object:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value), UNSET)


def _group(value: object) -> object:
    return value if isinstance(value, str) and _GROUP.fullmatch(value) else UNSET


def _texts(fits: Callable[[str], object]) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, list) or len(value) > _MOST_LISTED:
            return UNSET
        good = all(isinstance(text, str) and 0 < len(text) <= _LONGEST_TEXT and fits(text) for text in value)
        return tuple(value) if good else UNSET

    return read


def _plain(text: str) -> bool:
    """Of a requirement: options and further lines are not one."""
    return text.isprintable() and not text.startswith("-")


class _Annotation(NamedTuple):
    field: str
    takes: str
    read: Callable[[object], object]


_SHARE = "0.01 to 1 of a GPU in steps of 0.005, such as 0.25, or a whole number of GPUs, such as 2"
_SIZE = 'a size such as "4GiB", or a number of MiB'

ANNOTATIONS = {
    "gpu-share": _Annotation("gpu_share", f"0, or {_SHARE}", _share),
    "gpu-memory": _Annotation("gpu_memory_bytes", _SIZE, _memory),
    "gpu-share-limit": _Annotation("gpu_share_limit", _SHARE, _share_limit),
    "gpu-memory-limit": _Annotation("gpu_memory_limit_bytes", _SIZE, _memory),
    "latency-slo-ms": _Annotation("latency_slo_s", "a number of milliseconds above 0", _milliseconds),
    "cost-slo": _Annotation("cost_slo", "a number above 0", _number(0, 1e12, above=True)),
    "weight": _Annotation("weight", f"a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}", _number(MIN_WEIGHT, MAX_WEIGHT)),
    "batch": _Annotation("batch", "a whole number from 1 to 65536", _count),
    "datasets": _Annotation("datasets", "a list of names", _texts(str.isprintable)),
    "imports": _Annotation("imports", 'a list of module names, such as ["numpy"]', _texts(_MODULE.fullmatch)),
    "requirements": _Annotation(
        "requirements", 'a list of requirements as pip takes them, such as ["pillow>=10"]', _texts(_plain)
    ),
    "rerun": _Annotation("rerun", "true or false", _flag),
    "group": _Annotation("group", "a name of letters, digits, '_', '-' and '.', at most 64 of them", _group),
    "sdk": _Annotation("sdk", "true or false", _flag),
}


def _shown(value: object) -> str:
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - enough to recognise it
