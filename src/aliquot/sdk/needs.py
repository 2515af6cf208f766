"""The needs of a function: from its decorator to the limits and annotations of its action."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from aliquot.sdk.errors import UsageError
from aliquot.sdk.units import read_mib, read_ms, read_names, read_positive, read_share, read_variables

DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_MEMORY_MIB = 256
_GROUP = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
# Every annotation that a deployment may set. Those that it does not set are removed from the older version.
ANNOTATIONS = (
    *("sdk", "sdk-app", "sdk-digest", "imports", "requirements", "gpu-share", "gpu-memory", "gpu-share-limit"),
    *("gpu-memory-limit", "latency-slo-ms", "weight", "datasets", "rerun", "group", "durable"),
    *("env", "secrets"),
)


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
    rerun: bool = False
    group: str | None = None
    calls: bool | None = None
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()

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
            "rerun": self.rerun or None,
            "group": self.group,
            "provide-api-key": self.calls,
            "env": dict(self.env) or None,
            "secrets": list(self.secrets) or None,
        }
        return {key: value for key, value in said.items() if value is not None}


def check_group(group: object) -> None:
    if group is not None and not re.fullmatch(_GROUP, str(group)):
        raise UsageError(f"group: {group!r} is not a name; it takes letters, digits, '_', '-' and '.', at most 64")


def read_needs(
    *,
    gpu: float | None,
    gpu_memory: str | int | None,
    gpu_limit: float | None,
    gpu_memory_limit: str | int | None,
    memory: str | int | None,
    timeout: str | float | None,
    latency_slo: str | float | None,
    weight: float | None,
    imports: list[str] | tuple[str, ...],
    requirements: list[str] | tuple[str, ...],
    datasets: list[str] | tuple[str, ...],
    rerun: bool,
    group: str | None,
    calls: bool | None,
    env: Mapping[str, str] | None,
    secrets: list[str] | tuple[str, ...],
) -> FunctionNeeds:
    """Check and parse the arguments of the decorator. A typing mistake must not become a default."""
    of_gpu = {"gpu_memory": gpu_memory, "gpu_limit": gpu_limit, "gpu_memory_limit": gpu_memory_limit}
    for argument, value in of_gpu.items():
        if value is not None and gpu is None:
            raise UsageError(f"{argument}: {value!r} needs a GPU; say how much of one, such as gpu=0.25")
    for name, flag in (("rerun", rerun), ("calls", bool(calls) if calls is None else calls)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name}: {flag!r} does not fit; it takes True or False")
    check_group(group)
    for module in read_names(imports, "imports"):
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"imports: {module!r} is not a module's name; versions belong into requirements")
    return FunctionNeeds(
        gpu_share=None if gpu is None else read_share(gpu, "gpu"),
        gpu_memory_mib=None if gpu_memory is None else read_mib(gpu_memory, "gpu_memory"),
        gpu_share_limit=None if gpu_limit is None else read_share(gpu_limit, "gpu_limit"),
        gpu_memory_limit_mib=None if gpu_memory_limit is None else read_mib(gpu_memory_limit, "gpu_memory_limit"),
        memory_mib=DEFAULT_MEMORY_MIB if memory is None else read_mib(memory, "memory"),
        timeout_ms=DEFAULT_TIMEOUT_MS if timeout is None else read_ms(timeout, "timeout"),
        latency_slo_ms=None if latency_slo is None else read_ms(latency_slo, "latency_slo"),
        weight=None if weight is None else read_positive(weight, "weight"),
        imports=tuple(imports),
        requirements=read_names(requirements, "requirements"),
        datasets=read_names(datasets, "datasets", "imagenet"),
        rerun=rerun,
        group=group,
        calls=calls,
        env=() if env is None else read_variables(env, "env"),
        secrets=read_names(secrets, "secrets", "hf"),
    )
