"""Check declared functions, graphs and devices before they change any state."""

from collections.abc import Iterator
from math import inf, isfinite

from aliquot.core.admission.network import in_order
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, MAX_BATCH, DeviceSpec, FunctionSpec, GraphSpec, Times
from aliquot.core.places import SEPARATOR


def function_problems(function: FunctionSpec) -> Iterator[str]:
    """Yield a text for each invalid field of a function."""
    if not (function.weight > 0 and isfinite(function.weight)):
        yield f"weight {function.weight} is not above 0"
    yield from _share_problems(function)
    if function.memory_bytes < 0:
        yield f"memory_bytes {function.memory_bytes} is below 0"
    if function.run_bytes < 0:
        yield f"run_bytes {function.run_bytes} is below 0"
    if function.host_bytes < 0:
        yield f"host_bytes {function.host_bytes} is below 0"
    if function.instances is not None and function.instances < 1:
        yield f"instances {function.instances} is below 1"
    if not 1 <= function.batch <= MAX_BATCH:
        yield f"batch {function.batch} is not from 1 to {MAX_BATCH}"
    if function.warm < 0:
        yield f"warm {function.warm} is below 0"
    if "" in function.datasets:
        yield "a dataset has no name"
    for kind, times in (("", function.times), *function.times_by_kind.items()):
        yield from _time_problems(times, f" on {kind}" if kind else "")


def _share_problems(function: FunctionSpec) -> Iterator[str]:
    share, limit = function.share, function.share_limit
    if share is not None and not 0 <= share <= 1 and not (1 < share < inf and share == int(share)):
        yield f"share {share} is neither from 0 to 1 nor a whole number of devices"
    if limit is not None and not (share or 0) <= limit <= max(1, share or 0):
        yield f"share_limit {limit} is not from the share, {share or 0:g}, to {max(1, share or 0):g}"


def device_problems(device: DeviceSpec) -> Iterator[str]:
    """Yield a text for each invalid field of a device."""
    if SEPARATOR in device.name:
        yield f"its name contains '{SEPARATOR}', which separates the devices of one sandbox"
    if device.concurrency < 1:
        yield f"concurrency {device.concurrency} is below 1"
    if device.extra_slots < 0 or (device.extra_slots and device.kind != CPU):
        yield f"extra_slots {device.extra_slots} is below 0, or its kind {device.kind} is not {CPU}"
    if not (device.speed > 0 and isfinite(device.speed)):
        yield f"speed {device.speed} is not above 0"
    if device.price is not None and not (device.price >= 0 and isfinite(device.price)):
        yield f"price {device.price} is not 0 or more"
    if device.lanes is not None and not 1 <= device.lanes <= device.concurrency:
        yield f"lanes {device.lanes} is not from 1 to its concurrency, {device.concurrency}"
    if device.memory_bytes is not None and device.memory_bytes < 0:
        yield f"memory_bytes {device.memory_bytes} is below 0"


def graph_problems(graph: GraphSpec) -> Iterator[str]:
    """Yield a text for each invalid field of a graph, or the first circle in it."""
    if not graph.stages:
        yield "it has no stages"
    names = [stage.name for stage in graph.stages]
    for stage in graph.stages:
        if names.count(stage.name) > 1:
            yield f"stage '{stage.name}' is listed twice"
        if not 0 <= stage.probability <= 1:
            yield f"stage '{stage.name}': probability {stage.probability} is not from 0 to 1"
    try:
        in_order({stage.name: stage.after for stage in graph.stages})
    except InputError as error:
        yield str(error)


def _time_problems(times: Times, where: str) -> Iterator[str]:
    for name in ("run_s", "cold_s", "load_s"):
        value = getattr(times, name)
        if value is not None and not (value >= 0 and isfinite(value)):
            yield f"{name}{where} {value} is not 0 or more"
    for size, run_s in times.batch_s.items():
        if not (1 <= size <= MAX_BATCH and run_s >= 0 and isfinite(run_s)):
            yield f"run_s{where} {run_s} of a batch of {size} is not 0 or more, or the size not from 1 to {MAX_BATCH}"
