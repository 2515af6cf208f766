"""Can a function ever run on these devices? A refusal lists what stands in the way on each."""

from collections.abc import Sequence
from math import inf

from aliquot.core.model import DeviceSpec, FunctionSpec


def misfit(function: FunctionSpec, devices: Sequence[DeviceSpec]) -> str | None:
    """None when some device can hold the function; else the reason, device by device."""
    reasons = []
    for device in devices:
        reason = _misfit_on(function, device)
        if reason is None:
            return None
        reasons.append(f"{device.name}: {reason}")
    if not reasons:
        return "there are no devices"
    return "; ".join([*reasons, *_largest(function, devices)])


def _largest(function: FunctionSpec, devices: Sequence[DeviceSpec]) -> list[str]:
    """What of its kind would fit, for whoever asks for too much."""
    usable = [device for device in devices if function.runs_on(device)]
    if not usable or function.share == 0:
        return []
    most = max(device.memory_bytes or inf for device in usable)
    memory = "any memory" if most == inf else f"{most:.0f} bytes"
    return [f"the largest that would fit is a share of 1 with {memory}"]


def _misfit_on(function: FunctionSpec, device: DeviceSpec) -> str | None:
    if not function.runs_on(device):
        if function.share == 0:
            return f"kind {device.kind}, but without a GPU share it runs on kind cpu alone"
        return "kind cpu, and the function declares no time there"
    if function.share_on(device) > 1:
        return f"share {function.share} is more than the whole device (1)"
    if device.memory_bytes is not None and function.memory_bytes > device.memory_bytes:
        return f"needs {function.memory_bytes} bytes of {device.memory_bytes}"
    return None
