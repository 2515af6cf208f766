"""Check whether a function can ever run on a set of devices. A refusal gives the reason for each device."""

from collections import Counter
from collections.abc import Sequence
from math import inf

from aliquot.core.model import DeviceSpec, FunctionSpec


def misfit(function: FunctionSpec, devices: Sequence[DeviceSpec], host_bytes: int | None = None) -> str | None:
    """Return None if some devices can hold the function, or else the reasons, device by device.

    `host_bytes` is the host memory that all sandboxes together may claim.
    """
    if host_bytes is not None and function.host_bytes > host_bytes:
        return f"its sandboxes claim {function.host_bytes} bytes of host memory each, and there are {host_bytes}"
    reasons = []
    fitting: Counter[str] = Counter()  # by kind
    for device in devices:
        reason = _misfit_on(function, device)
        if reason is None:
            fitting[device.kind] += 1
            if fitting[device.kind] == function.device_count:
                return None
        else:
            reasons.append(f"{device.name}: {reason}")
    if not devices:
        return "there are no devices"
    if fitting:
        counted = ", ".join(f"{count} of kind {kind}" for kind, count in fitting.items())
        reasons.append(f"a share of {function.share:g} takes so many whole devices of one kind; there are {counted}")
    return "; ".join([*reasons, *_largest(function, devices)])


def could_hold(function: FunctionSpec, device: DeviceSpec, devices: Sequence[DeviceSpec]) -> bool:
    """Return whether the function could ever be on that device, with enough others if it takes several."""
    if _misfit_on(function, device) is not None:
        return False
    count = function.device_count
    return count == 1 or count <= sum(
        other.kind == device.kind and _misfit_on(function, other) is None for other in devices
    )


def _largest(function: FunctionSpec, devices: Sequence[DeviceSpec]) -> list[str]:
    """Return the largest request that would fit: as many devices as possible, then memory."""
    memory: dict[str, list[float]] = {}  # by kind
    for device in devices:
        if function.runs_on(device):
            memory.setdefault(device.kind, []).append(inf if device.memory_bytes is None else device.memory_bytes)
    if not memory or function.share == 0:
        return []
    found = []
    alone = {device.kind: device.alone for device in devices}
    for kind, sizes in memory.items():
        sizes.sort(reverse=True)
        count = min(function.device_count, len(sizes), 1 if alone[kind] else len(sizes))
        found.append((count, sizes[count - 1]))
    count, max_bytes = max(found)
    each = "any memory" if max_bytes == inf else f"{max_bytes:.0f} bytes"
    return [f"the largest that would fit is a share of {count} with {each}{' on each device' if count > 1 else ''}"]


def _misfit_on(function: FunctionSpec, device: DeviceSpec) -> str | None:
    if not function.runs_on(device):
        if function.share == 0:
            return f"kind {device.kind}, but without a GPU share it runs on kind cpu alone"
        return "kind cpu, and the function declares no time there"
    if device.alone and function.device_count > 1:
        return "a sandbox on it cannot use a second device"
    if device.memory_bytes is not None and function.memory_bytes > device.memory_bytes:
        return f"needs {function.memory_bytes} bytes of {device.memory_bytes}"
    return None
