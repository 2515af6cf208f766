"""A flow's idle sandboxes, by device."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aliquot.core.device import Device
    from aliquot.core.records import Sandbox


class IdleSandboxes:
    """A flow's idle sandboxes on one device, in order of use."""

    __slots__ = ("device", "not_resident", "resident")

    def __init__(self, device: "Device") -> None:
        self.device = device
        self.resident: dict[int, Sandbox] = {}  # in device memory
        self.not_resident: dict[int, Sandbox] = {}


class IdlePlaces:
    """The devices on which a flow has idle sandboxes, in order of use. It is kept only if there are many devices."""

    __slots__ = ("_not_resident", "_resident")

    def __init__(self) -> None:
        self._resident: OrderedDict[int, IdleSandboxes] = OrderedDict()  # at least one is in device memory
        self._not_resident: OrderedDict[int, IdleSandboxes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._resident) + len(self._not_resident)

    def update(self, idle: IdleSandboxes) -> None:
        """Record that the flow's idle sandboxes on a device have changed."""
        index = idle.device.index
        self._resident.pop(index, None)
        self._not_resident.pop(index, None)
        if idle.resident:
            self._resident[index] = idle
        elif idle.not_resident:
            self._not_resident[index] = idle

    def recent(self) -> Iterator[IdleSandboxes]:
        """Iterate over the devices, those with resident sandboxes first, and the most recently used of them first."""
        yield from reversed(self._resident.values())
        yield from reversed(self._not_resident.values())

    def swapped_out(self) -> Iterator[IdleSandboxes]:
        """Iterate over the devices on which none of its sandboxes is resident, the most recently used first."""
        return reversed(self._not_resident.values())
