"""Builders of devices and functions with defaults, so that a test states only what matters to it."""

from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB


def device(
    name: str = "gpu-1",
    *,
    concurrency: int = 1,
    memory_bytes: int | None = 16 * GIB,
    kind: str = "gpu",
    speed: float = 1,
) -> DeviceSpec:
    """Return a GPU with one slot and 16 GiB, unless arguments say otherwise."""
    return DeviceSpec(name, kind, memory_bytes, concurrency, speed=speed)


def function(
    name: str = "f",
    *,
    run_s: float | None = 1,
    cold_s: float = 2,
    load_s: float | None = 0.5,
    memory_bytes: int = GIB,
    share: float | None = None,
    weight: float = 1,
    times_by_kind: dict[str, Times] | None = None,
    share_limit: float | None = None,
    datasets: tuple[str, ...] = (),
) -> FunctionSpec:
    """Return a function with short times and 1 GiB, unless arguments say otherwise."""
    times = Times(run_s, cold_s, load_s)
    kinds = times_by_kind or {}
    return FunctionSpec(name, memory_bytes, share, times, kinds, weight, share_limit=share_limit, datasets=datasets)
