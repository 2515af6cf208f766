"""What is wrong with a declaration, if anything: looked at before it changes any state."""

from collections.abc import Iterator
from math import isfinite

from aliquot.core.model import DeviceSpec, FunctionSpec, Times


def function_complaints(function: FunctionSpec) -> Iterator[str]:
    if not (function.weight > 0 and isfinite(function.weight)):
        yield f"weight {function.weight} is not above 0"
    if function.share is not None and not 0 <= function.share <= 1:
        yield f"share {function.share} is not from 0 to 1"
    limit = function.share_limit
    if limit is not None and not (function.share or 0) <= limit <= 1:
        yield f"share_limit {limit} is not from the share, {function.share or 0:g}, to 1"
    if function.memory_bytes < 0:
        yield f"memory_bytes {function.memory_bytes} is below 0"
    if function.host_bytes < 0:
        yield f"host_bytes {function.host_bytes} is below 0"
    if function.instances is not None and function.instances < 1:
        yield f"instances {function.instances} is below 1"
    if "" in function.datasets:
        yield "a dataset has no name"
    for kind, times in (("", function.times), *function.times_by_kind.items()):
        yield from _time_complaints(times, f" on {kind}" if kind else "")


def device_complaints(device: DeviceSpec) -> Iterator[str]:
    if device.concurrency < 1:
        yield f"concurrency {device.concurrency} is below 1"
    if not (device.speed > 0 and isfinite(device.speed)):
        yield f"speed {device.speed} is not above 0"
    if device.memory_bytes is not None and device.memory_bytes < 0:
        yield f"memory_bytes {device.memory_bytes} is below 0"


def _time_complaints(times: Times, where: str) -> Iterator[str]:
    for name in ("run_s", "cold_s", "load_s"):
        value = getattr(times, name)
        if value is not None and not (value >= 0 and isfinite(value)):
            yield f"{name}{where} {value} is not 0 or more"
