"""Check whether a function can ever run on a set of devices. A refusal gives the reason for each class of devices."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from aliquot.core.model import DeviceSpec, FunctionSpec
from aliquot.core.run_memory import start_bytes

MAX_NAMED = 4  # equal devices that a refusal names one by one
_TOLERANCE = 1e-9  # of sums of shares


def misfit(function: FunctionSpec, devices: Sequence[DeviceSpec], host_bytes: int | None = None) -> str | None:
    """Return None if some devices can hold the function, or else the reasons, for each class of equal devices.

    `host_bytes` is the host memory that all sandboxes together may claim.
    """
    if host_bytes is not None and function.host_bytes > host_bytes:
        return f"its sandboxes claim {function.host_bytes} bytes of host memory each, and there are {host_bytes}"
    alike: dict[DeviceSpec, list[DeviceSpec]] = {}
    for device in devices:
        alike.setdefault(device.class_spec, []).append(device)
    reasons = []
    fitting: Counter[tuple[str, str]] = Counter()  # by kind and node
    for equal in alike.values():
        reason = misfit_on(function, equal[0])
        if reason is None:
            for device in equal:
                fitting[device.kind, device.node] += 1
        else:
            reasons.append(f"{_names(equal)}: {reason}")
    if fitting and max(fitting.values()) >= function.device_count:
        return None
    if not devices:
        return "there are no devices"
    if fitting:
        reasons.append(_too_few(function, fitting))
    return "; ".join([*reasons, *_largest(function, devices)])


def could_hold(function: FunctionSpec, device: DeviceSpec, devices: Iterable[DeviceSpec]) -> bool:
    """Return whether the function could ever be on that device, with enough others of its node if it takes several."""
    if misfit_on(function, device) is not None:
        return False
    count = function.device_count
    return count == 1 or count <= sum(
        (other.kind, other.node) == (device.kind, device.node) and misfit_on(function, other) is None
        for other in devices
    )


def count_at_once(functions: Sequence[FunctionSpec], devices: Sequence[DeviceSpec]) -> int:
    """Return how many of these functions run at once on empty devices, each in a sandbox of its own.

    The largest is placed first, on the first devices that have room.
    """
    rooms = [_Room(device) for device in devices]
    placed = 0
    for function in sorted(functions, key=lambda one: (one.share or 0, one.memory_bytes), reverse=True):
        by_place: dict[tuple[str, str], list[_Room]] = {}
        for room in rooms:
            if room.has_room(function):
                by_place.setdefault((room.device.kind, room.device.node), []).append(room)
        fitting = next((found for found in by_place.values() if len(found) >= function.device_count), [])
        for room in fitting[: function.device_count]:
            room.take(function)
        placed += bool(fitting)
    return placed


class _Room:
    """The room that is left on a device."""

    def __init__(self, device: DeviceSpec) -> None:
        self.device = device
        self._share = 1.0
        self._slots = device.concurrency
        self._memory = inf if device.memory_bytes is None else device.memory_bytes

    def has_room(self, function: FunctionSpec) -> bool:
        device = self.device
        if misfit_on(function, device) is not None or self._slots < 1:
            return False
        return function.share_on(device) <= self._share + _TOLERANCE and function.memory_bytes <= self._memory

    def take(self, function: FunctionSpec) -> None:
        self._share -= function.share_on(self.device)
        self._memory -= function.memory_bytes
        self._slots -= 1


def _names(devices: Sequence[DeviceSpec]) -> str:
    """Return the names of a few devices, or one name and the number of the others."""
    if len(devices) <= MAX_NAMED:
        return ", ".join(device.name for device in devices)
    return f"{devices[0].name} and {len(devices) - 1} like it"


def _too_few(function: FunctionSpec, fitting: Counter[tuple[str, str]]) -> str:
    most: dict[str, int] = {}
    for (kind, _), count in fitting.items():
        most[kind] = max(count, most.get(kind, 0))
    counted = ", ".join(f"{count} of kind {kind}" for kind, count in most.items())
    if len({node: None for _, node in fitting}) == 1:
        return f"a share of {function.share:g} takes so many whole devices of one kind; there are {counted}"
    return f"a share of {function.share:g} takes so many whole devices of one kind on one node; there are {counted}"


def _largest(function: FunctionSpec, devices: Sequence[DeviceSpec]) -> list[str]:
    """Return the largest request that would fit: as many devices as possible, then memory."""
    memory: dict[tuple[str, str], list[float]] = {}  # by kind and node
    for device in devices:
        if function.runs_on(device):
            size = inf if device.memory_bytes is None else device.memory_bytes
            memory.setdefault((device.kind, device.node), []).append(size)
    if not memory or function.share == 0:
        return []
    found = []
    alone = {device.kind: device.alone for device in devices}
    for (kind, _), sizes in memory.items():
        sizes.sort(reverse=True)
        count = min(function.device_count, len(sizes), 1 if alone[kind] else len(sizes))
        found.append((count, sizes[count - 1]))
    count, max_bytes = max(found)
    each = "any memory" if max_bytes == inf else f"{max_bytes:.0f} bytes"
    return [f"the largest that would fit is a share of {count} with {each}{' on each device' if count > 1 else ''}"]


def misfit_on(function: FunctionSpec, device: DeviceSpec) -> str | None:
    """Return why the function can never use that device, or devices of its class, or None if it can."""
    if not function.runs_on(device):
        if function.needs_head and device.remote:
            return f"kind {device.kind} on another node, and this function needs the head"
        if function.share == 0:
            return f"kind {device.kind}, but without a GPU share it runs on kind cpu alone"
        return "kind cpu, and the function declares no time there"
    if device.alone and function.device_count > 1:
        return "a sandbox on it cannot use a second device"
    needed = start_bytes(function)
    if device.memory_bytes is not None and needed > device.memory_bytes:
        runs = f", {function.run_bytes} of them while it runs" if function.run_bytes else ""
        return f"needs {needed} bytes of {device.memory_bytes}{runs}"
    return None
