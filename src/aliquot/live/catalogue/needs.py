"""Parse an action's needs from its annotations, which unmodified OpenWhisk clients can set.

The table `ANNOTATIONS` has every annotation that the platform reads, and the values it accepts. Other annotations are
ignored.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET, Struct
from msgspec.structs import replace

from aliquot.config import MAX_WEIGHT, MIN_WEIGHT, parse_size
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, MAX_BATCH, FunctionSpec, Times
from aliquot.core.units import KIB, MIB
from aliquot.live.catalogue.kernel_graphs import DEFAULT_SHARE, graph_needs
from aliquot.live.catalogue.names import is_name
from aliquot.live.catalogue.variables import VARIABLE_NAMES, is_variable, is_variable_value
from aliquot.live.store.records import KERNEL, Action

_MAX_LIST_LENGTH = 256
_MAX_MEMORY_MB = 1_073_741_824
_MAX_TEXT_LENGTH = 1024
_MAX_FILE_NAME_LENGTH = 255
MAX_WARM = 100  # sandboxes of one function that are held ready
_MAX_VALUE_LENGTH = 32 * KIB  # of an environment variable
_MIN_SHARE, _SHARE_STEP = 0.01, 0.005  # the step allows an eighth of a GPU, 0.125
_MAX_GPUS = 1024
_TOLERANCE = 1e-6  # in binary 0.29 is not a whole number of steps
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

DEFAULT_RERUNS, MAX_RERUNS = 2, 10  # of a call after crashes


class ActionNeeds(Struct, frozen=True):
    """The resources and settings that an action asks for.

    A field is named after its annotation, with `_` for `-` and the unit at the end.
    """

    gpu_share: float = 0  # of a GPU, or a number of GPUs above 1; 0 means the node's `cpu` device
    gpu_memory_bytes: int = 0  # on each GPU
    gpu_share_limit: float | None = None  # share that it may use while the device has spare capacity
    gpu_memory_limit_bytes: int | None = None
    latency_slo_s: float | None = None
    cost_slo: float | None = None
    weight: float = 1
    batch: int = 1
    cpu: str | None = None  # entry point of its version for the processors, empty for the same one; None without one
    datasets: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    rerun: int | None = None  # how often it may run again after a crash; None if it does not say
    sdk: bool = False  # the code is a module of `aliquot.App` functions
    group: str = ""  # group that shares sandboxes, or empty
    env: tuple[tuple[str, str], ...] = ()  # environment variables
    secrets: tuple[str, ...] = ()  # names of secrets, whose variables it gets
    pure: bool = False  # its result follows from its arguments alone
    cache_ttl_s: float | None = None  # how long results are kept
    warm: int = 0  # sandboxes that are held ready
    exit: bool = False  # it has code to run when its sandbox is stopped
    file: str = ""  # name of the file that the code comes from, or empty
    volumes: tuple[str, ...] = ()  # names of volumes, which it can write to
    run_bytes: int = 0  # device memory of a kernel graph that it needs only during a run
    one_per_device: bool = False  # it is a kernel graph

    @property
    def memory_limit_bytes(self) -> int:
        """The device memory that it may use: its limit, or its request if it has no limit."""
        return self.gpu_memory_bytes if self.gpu_memory_limit_bytes is None else self.gpu_memory_limit_bytes

    def function(self, name: str, *, host_bytes: int = 0, cold_s: float = 0) -> FunctionSpec:
        """Return the function as the core's record. `cold_s` is the time of a start."""
        return FunctionSpec(
            name,
            times_by_kind={} if self.cpu is None else {CPU: Times(cold_s=cold_s)},
            memory_bytes=self.gpu_memory_bytes,
            share=self.gpu_share,
            weight=self.weight,
            host_bytes=host_bytes,
            share_limit=self.gpu_share_limit,
            datasets=self.datasets,
            batch=self.batch,
            warm=self.warm,
            run_bytes=self.run_bytes,
            one_per_device=self.one_per_device,
        )


def parse_needs(action: Action) -> ActionNeeds:
    """Parse the annotations of an action. Raises an `InputError` that names the annotation and what it takes."""
    values: dict[str, Any] = {}
    for pair in action.annotations:
        if (annotation := ANNOTATIONS.get(pair.key)) is None or pair.value is None:
            continue
        value = annotation.read(pair.value)
        if value is UNSET:
            raise InputError(f"annotation {pair.key}: it takes {annotation.takes}, not {_shown(pair.value)}")
        values[annotation.field] = value
    needs = ActionNeeds(**values)
    _check(needs)
    if action.exec.kind == KERNEL:
        return _with_graph(action, needs)
    return replace(needs, batch=1) if needs.batch > 1 and _why_no_batches(action, needs) else needs


def _with_graph(action: Action, needs: ActionNeeds) -> ActionNeeds:
    """Add the needs that follow from a kernel graph. Without a share it gets half of a device."""
    graph = graph_needs(action)
    share = DEFAULT_SHARE if action.annotation("gpu-share") is None else needs.gpu_share
    if share > 1:
        raise InputError(f"annotation gpu-share: a kernel graph runs on one device; {share:g} is of several")
    memory = {"gpu_memory_bytes": graph.memory_bytes, "run_bytes": graph.run_bytes}
    return replace(needs, gpu_share=share, one_per_device=True, **memory)


def check_batch(action: Action) -> None:
    """Refuse batches for an action that cannot have them. Those of earlier versions run their calls one by one."""
    value = action.annotation("batch")
    reason = _why_no_batches(action, parse_needs(action))
    if reason and value is not None and _count(value) != 1:
        raise InputError(f"annotation batch: {_shown(value)} does not fit; {reason}")


def _why_no_batches(action: Action, needs: ActionNeeds) -> str:
    if needs.group:
        return "a function of a group runs its calls one by one"
    kind = action.exec.kind
    return "" if kind.startswith("python:") else f"it takes Python functions alone, not {kind}"


def _check(needs: ActionNeeds) -> None:
    if needs.cache_ttl_s is not None and not needs.pure:
        raise InputError("annotation cache-ttl-ms: it needs pure: true beside it, because results are used again")
    if needs.cpu is not None and (needs.group or not 0 < needs.gpu_share <= 1):
        raise InputError(
            "annotation cpu: it is for a function with gpu-share of at most 1 beside it, and without a group"
        )
    if not needs.gpu_share:
        for name in ("gpu-memory", "gpu-share-limit", "gpu-memory-limit"):
            if getattr(needs, ANNOTATIONS[name].field):
                raise InputError(f"annotation {name}: it needs gpu-share beside it, such as 0.25")
    if needs.gpu_share_limit is not None and needs.gpu_share_limit < needs.gpu_share:
        raise InputError(f"annotation gpu-share-limit: it takes at least gpu-share, which is {needs.gpu_share:g}")
    if needs.gpu_share_limit is not None and needs.gpu_share_limit > max(1, needs.gpu_share):
        max_limit = max(1, needs.gpu_share)
        raise InputError(
            f"annotation gpu-share-limit: it takes at most {max_limit:g}, because no function borrows a second GPU"
        )
    if needs.gpu_memory_limit_bytes is not None and needs.gpu_memory_limit_bytes < needs.gpu_memory_bytes:
        bytes_ = needs.gpu_memory_bytes
        raise InputError(f"annotation gpu-memory-limit: it takes at least gpu-memory, which is {bytes_} bytes")


# --- parsers: each returns the value, or UNSET if it is not accepted ------------------------------------------


def _number(low: float, high: float, *, above: bool = False) -> Callable[[object], object]:
    def read(value: object) -> object:
        if isinstance(value, str):  # wsk sends values that are not JSON as text
            try:
                value = float(value)
            except ValueError:
                return UNSET
        if not isinstance(value, int | float) or isinstance(value, bool):
            return UNSET
        return float(value) if low <= value <= high and not (above and value == low) else UNSET

    return read


def _share(value: object) -> object:
    """Parse a share. Values between two steps and fractions above 1 are refused, because nothing is rounded."""
    number = _number(0, _MAX_GPUS)(value)
    if not isinstance(number, float) or 0 < number < _MIN_SHARE:
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
    megabytes = _number(0, _MAX_MEMORY_MB)(value)
    return round(megabytes * MIB) if isinstance(megabytes, float) else UNSET


def _milliseconds(value: object) -> object:
    number = _number(0, 1e9, above=True)(value)
    return number / 1000 if isinstance(number, float) else UNSET


def _count(value: object) -> object:
    number = _number(1, MAX_BATCH)(value)
    return int(number) if isinstance(number, float) and number.is_integer() else UNSET


def _flag(value: object) -> object:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value), UNSET)


def _cpu(value: object) -> object:
    flag = _flag(value)
    if isinstance(flag, bool):
        return "" if flag else None
    return value if isinstance(value, str) and _MODULE.fullmatch(value) else UNSET


def read_rerun(value: object) -> object:
    """Return how often a function may run again after a crash, or UNSET for what is no number of runs."""
    flag = _flag(value)
    if isinstance(flag, bool):
        return DEFAULT_RERUNS if flag else 0
    return value if isinstance(value, int) and 0 <= value <= MAX_RERUNS else UNSET


def reruns_of(action: Action) -> int | None:
    """Return how often a function may run again after a crash, or None if it does not say."""
    value = action.annotation("rerun")
    if value is None and action.exec.kind == KERNEL:
        return DEFAULT_RERUNS  # a graph has no effects before its end
    found = None if value is None else read_rerun(value)
    return found if isinstance(found, int) else None


def _group(value: object) -> object:
    return value if isinstance(value, str) and _GROUP.fullmatch(value) else UNSET


def _warm(value: object) -> object:
    number = _number(0, MAX_WARM)(value)
    return int(number) if isinstance(number, float) and number.is_integer() else UNSET


def _file_name(value: object) -> object:
    good = isinstance(value, str) and 0 < len(value) <= _MAX_FILE_NAME_LENGTH and value.isprintable()
    return value if good and "/" not in str(value) else UNSET


def _variables(value: object) -> object:
    if not isinstance(value, dict) or len(value) > _MAX_LIST_LENGTH:
        return UNSET
    for name, text in value.items():
        if not is_variable(name) or not is_variable_value(text) or len(text) > _MAX_VALUE_LENGTH:
            return UNSET
    return tuple(value.items())


def _texts(fits: Callable[[str], object]) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, list) or len(value) > _MAX_LIST_LENGTH:
            return UNSET
        good = all(isinstance(text, str) and 0 < len(text) <= _MAX_TEXT_LENGTH and fits(text) for text in value)
        return tuple(value) if good else UNSET

    return read


def _plain(text: str) -> bool:
    """Return True for a single requirement, and False for an option or several lines."""
    return text.isprintable() and bool(text.strip()) and not text.lstrip().startswith("-")


class _NeedsAnnotation(NamedTuple):
    field: str
    takes: str
    read: Callable[[object], object]


_SHARE = "0.01 to 1 of a GPU in steps of 0.005, such as 0.25, or a whole number of GPUs, such as 2"
_SIZE = 'a size such as "4GiB", or a number of MiB'

ANNOTATIONS = {
    "gpu-share": _NeedsAnnotation("gpu_share", f"0, or {_SHARE}", _share),
    "gpu-memory": _NeedsAnnotation("gpu_memory_bytes", _SIZE, _memory),
    "gpu-share-limit": _NeedsAnnotation("gpu_share_limit", _SHARE, _share_limit),
    "gpu-memory-limit": _NeedsAnnotation("gpu_memory_limit_bytes", _SIZE, _memory),
    "cpu": _NeedsAnnotation("cpu", "true, false, or the name of the function's version for the processors", _cpu),
    "latency-slo-ms": _NeedsAnnotation("latency_slo_s", "a number of milliseconds above 0", _milliseconds),
    "cost-slo": _NeedsAnnotation("cost_slo", "a number above 0", _number(0, 1e12, above=True)),
    "weight": _NeedsAnnotation(
        "weight", f"a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}", _number(MIN_WEIGHT, MAX_WEIGHT)
    ),
    "batch": _NeedsAnnotation("batch", f"a whole number from 1 to {MAX_BATCH}", _count),
    "datasets": _NeedsAnnotation("datasets", "a list of names", _texts(str.isprintable)),
    "volumes": _NeedsAnnotation("volumes", 'a list of names of volumes, such as ["models"]', _texts(is_name)),
    "imports": _NeedsAnnotation("imports", 'a list of module names, such as ["numpy"]', _texts(_MODULE.fullmatch)),
    "requirements": _NeedsAnnotation(
        "requirements", 'a list of requirements as pip takes them, such as ["pillow>=10"]', _texts(_plain)
    ),
    "rerun": _NeedsAnnotation(
        "rerun", f"true (which is {DEFAULT_RERUNS}), false, or how often, at most {MAX_RERUNS}", read_rerun
    ),
    "group": _NeedsAnnotation("group", "a name of letters, digits, '_', '-' and '.', at most 64 of them", _group),
    "env": _NeedsAnnotation(
        "env", f'an object of texts by their names, such as {{"MODE": "fast"}}; a name has {VARIABLE_NAMES}', _variables
    ),
    "secrets": _NeedsAnnotation("secrets", 'a list of names of secrets, such as ["hf"]', _texts(is_name)),
    "sdk": _NeedsAnnotation("sdk", "true or false", _flag),
    "pure": _NeedsAnnotation("pure", "true or false", _flag),
    "cache-ttl-ms": _NeedsAnnotation("cache_ttl_s", "a number of milliseconds above 0", _milliseconds),
    "warm": _NeedsAnnotation("warm", f"a whole number from 0 to {MAX_WARM}", _warm),
    "sdk-file": _NeedsAnnotation("file", "the name of a file", _file_name),
    "exit": _NeedsAnnotation("exit", "true or false", _flag),
}


def _shown(value: object) -> str:
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - enough to recognise it
