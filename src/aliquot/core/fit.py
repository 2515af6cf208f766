"""Can a function ever run on these devices? A refusal lists what stands in the way on each."""

from collections.abc import Iterable

from aliquot.core.model import DeviceSpec, FunctionSpec


def misfit(function: FunctionSpec, devices: Iterable[DeviceSpec]) -> str | None:
    """None when some device can hold the function; else the reason, device by device."""
    reasons = []
    for device in devices:
        reason = _misfit_on(function, device)
        if reason is None:
            return None
        reasons.append(f"{device.name}: {reason}")
    return "; ".join(reasons) or "there are no devices"


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
