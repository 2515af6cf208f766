"""The needs of a function: from its decorator to the limits and annotations of its action."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Required, TypedDict, Unpack

from aliquot.sdk.errors import UsageError
from aliquot.sdk.units import (
    read_mib,
    read_ms,
    read_names,
    read_positive,
    read_retries,
    read_schedule,
    read_share,
    read_variables,
    read_warm,
)

DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_MEMORY_MIB = 256
MAX_RERUNS = 10
_GROUP = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
# Every annotation that a deployment may set. Those that it does not set are removed from the older version.
ANNOTATIONS = (
    *("sdk", "sdk-app", "sdk-digest", "imports", "requirements", "gpu-share", "gpu-memory", "gpu-share-limit"),
    *("gpu-memory-limit", "latency-slo-ms", "weight", "datasets", "rerun", "group", "durable"),
    *("env", "secrets", "exit", "sdk-file", "schedule", "warm", "batch", "pure", "cost-slo", "cache-ttl-ms", "cpu"),
    "volumes",
)
MAX_BATCH = 65_536


class FunctionArguments(TypedDict, total=False):
    """The arguments of `@app.function` and `@app.cls`, which `App.function` explains."""

    gpu: float | None
    gpu_memory: str | int | None
    gpu_limit: float | None
    gpu_memory_limit: str | int | None
    memory: str | int | None
    timeout: str | float | None
    latency_slo: str | float | None
    weight: float | None
    imports: list[str] | tuple[str, ...]
    requirements: list[str] | tuple[str, ...]
    datasets: list[str] | tuple[str, ...]
    volumes: list[str] | tuple[str, ...]
    rerun: bool | int | None
    retries: int
    schedule: str | None
    warm: int
    group: str | None
    calls: bool | None
    env: Mapping[str, str] | None
    secrets: list[str] | tuple[str, ...]
    pure: bool
    cost_slo: float | None
    cache_ttl: str | float | None
    cpu: bool


class BatchArguments(FunctionArguments, total=False):
    """The arguments of `@app.function` for a function that takes batches."""

    batch: Required[int]


class FunctionNeeds(NamedTuple):
    """The needs of one function, parsed. None leaves a value to the platform."""

    gpu_share: float | None = None
    gpu_memory_mib: int | None = None
    gpu_share_limit: float | None = None
    gpu_memory_limit_mib: int | None = None
    memory_mib: int = DEFAULT_MEMORY_MIB
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    latency_slo_ms: int | None = None
    weight: float | None = None
    imports: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    rerun: bool | int | None = None
    schedule: str | None = None
    warm: int | None = None
    group: str | None = None
    calls: bool | None = None
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    exit: bool = False  # it has methods that run when its sandbox is stopped
    pure: bool = False
    cost_slo: float | None = None
    cache_ttl_ms: int | None = None
    batch: int | None = None
    cpu: str | bool = False  # whether it runs on processors, too, or the name of its version for them

    def limits(self) -> dict[str, int]:
        return {"timeout": self.timeout_ms, "memory": self.memory_mib}

    def annotations(self) -> dict[str, Any]:
        said = {
            "gpu-share": self.gpu_share,
            "gpu-memory": self.gpu_memory_mib,
            "gpu-share-limit": self.gpu_share_limit,
            "gpu-memory-limit": self.gpu_memory_limit_mib,
            "latency-slo-ms": self.latency_slo_ms,
            "weight": self.weight,
            "imports": list(self.imports) or None,
            "requirements": list(self.requirements) or None,
            "datasets": list(self.datasets) or None,
            "volumes": list(self.volumes) or None,
            "rerun": self.rerun,
            "group": self.group,
            "provide-api-key": self.calls,
            "env": dict(self.env) or None,
            "secrets": list(self.secrets) or None,
            "exit": self.exit or None,
            "schedule": self.schedule,
            "warm": self.warm,
            "pure": self.pure or None,
            "cost-slo": self.cost_slo,
            "cache-ttl-ms": self.cache_ttl_ms,
            "batch": self.batch,
            "cpu": self.cpu or None,
        }
        return {key: value for key, value in said.items() if value is not None}


def check_group(group: object) -> None:
    if group is not None and not re.fullmatch(_GROUP, str(group)):
        raise UsageError(f"group: {group!r} is not a name; it takes letters, digits, '_', '-' and '.', at most 64")


def check_cpu(gpu: float | None, group: object, argument: str) -> None:
    """Refuse a version for the processors of a function that has no share of one GPU, or a group."""
    if gpu is None or gpu > 1:
        raise UsageError(f"{argument}: it needs a share of one GPU beside it, such as gpu=0.5, not gpu={gpu!r}")
    if group is not None:
        raise UsageError(f"{argument}: a function of a group has one version; leave out group={group!r}")


def check_schedule(raw: Callable[..., Any], needs: FunctionNeeds) -> None:
    """Refuse a schedule of a function that cannot be called without arguments."""
    import inspect

    if needs.schedule is None:
        return
    try:
        inspect.signature(raw).bind()
    except TypeError as error:
        raise UsageError(f"schedule: {raw.__name__} is called without arguments, which fails: {error}") from error


def read_needs(*, batch: int | None = None, **arguments: Unpack[FunctionArguments]) -> FunctionNeeds:
    """Check and parse the arguments of the decorator. A typing mistake must not become a default."""
    known = FunctionArguments.__annotations__
    for name in arguments:
        if name not in known:
            raise UsageError(f"{name}: there is no such argument; there are {', '.join(known)}, batch")
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    for name in ("gpu_memory", "gpu_limit", "gpu_memory_limit"):
        if name in given and "gpu" not in given:
            raise UsageError(f"{name}: {given[name]!r} needs a GPU; say how much of one, such as gpu=0.25")
    _check_flags(given)
    if given.get("cpu"):
        check_cpu(given.get("gpu"), given.get("group"), "cpu")
    check_group(given.get("group"))
    _check_reuse(batch, given)
    needs = FunctionNeeds(
        **{field: read(given[name], name) for name, (field, read) in _READERS.items() if name in given}, batch=batch
    )
    for module in needs.imports:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"imports: {module!r} is not a module's name; versions belong into requirements")
    return needs


def _check_flags(given: dict[str, Any]) -> None:
    for name in ("calls", "pure", "cpu"):
        if not isinstance(given.get(name, False), bool):
            raise UsageError(f"{name}: {given[name]!r} does not fit; it takes True or False")
    if "retries" in given and "rerun" in given:
        raise UsageError("retries: leave out rerun, which says the same")


def _check_reuse(batch: object, given: Mapping[str, Any]) -> None:
    """Check the arguments by which several calls share a run or a result."""
    if "cache_ttl" in given and not given.get("pure"):
        raise UsageError(f"cache_ttl: {given['cache_ttl']!r} needs pure=True, because results are used again")
    if batch is None:
        return
    if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= MAX_BATCH:
        raise UsageError(f"batch: {batch!r} does not fit; it takes a whole number of calls, 1 to {MAX_BATCH}")
    if given.get("group") is not None:
        raise UsageError(f"batch: {batch!r} does not fit; a function of a group runs its calls one by one")


def _as_given(value: Any, _: str) -> Any:  # noqa: ANN401 - checked before
    return value


def _read_rerun(value: Any, argument: str) -> int:  # noqa: ANN401 - whatever was given
    if not isinstance(value, int) or not 0 <= value <= MAX_RERUNS:
        raise UsageError(f"{argument}: {value!r} does not fit; it takes True, False, or a number up to {MAX_RERUNS}")
    return value


def _names_like(example: str) -> Callable[[Any, str], tuple[str, ...]]:
    return lambda value, argument: read_names(value, argument, example)


# The field of `FunctionNeeds` for each argument, and the function that reads it.
_READERS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "gpu": ("gpu_share", read_share),
    "gpu_memory": ("gpu_memory_mib", read_mib),
    "gpu_limit": ("gpu_share_limit", read_share),
    "gpu_memory_limit": ("gpu_memory_limit_mib", read_mib),
    "memory": ("memory_mib", read_mib),
    "timeout": ("timeout_ms", read_ms),
    "latency_slo": ("latency_slo_ms", read_ms),
    "weight": ("weight", read_positive),
    "imports": ("imports", _names_like("numpy")),
    "requirements": ("requirements", _names_like("numpy")),
    "datasets": ("datasets", _names_like("imagenet")),
    "volumes": ("volumes", _names_like("models")),
    "rerun": ("rerun", _read_rerun),
    "retries": ("rerun", read_retries),
    "schedule": ("schedule", read_schedule),
    "warm": ("warm", read_warm),
    "group": ("group", _as_given),
    "calls": ("calls", _as_given),
    "env": ("env", read_variables),
    "secrets": ("secrets", _names_like("hf")),
    "pure": ("pure", _as_given),
    "cost_slo": ("cost_slo", read_positive),
    "cache_ttl": ("cache_ttl_ms", read_ms),
    "cpu": ("cpu", _as_given),
}
