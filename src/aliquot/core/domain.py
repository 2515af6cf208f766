"""A domain: flows that compete for the same devices, and the queueing policy that decides among them.

Functions without a GPU share compete for the `cpu` devices, and the others for the accelerators. Functions that declare
times for both compete for all devices. Each domain has its own policy instance, so a full GPU never delays a CPU
function, and a policy need not check which devices a flow may use.
"""

from bisect import insort
from collections.abc import Iterable

from aliquot.core.device import Device
from aliquot.core.device_index import DeviceIndex
from aliquot.core.interfaces import Packing, Queueing
from aliquot.core.model import CPU, FunctionSpec
from aliquot.core.tenant_slots import TenantSlots
from aliquot.core.view import View

ANY, ACCELERATOR = "any", "accelerator"


def domain_of(function: FunctionSpec) -> str:
    """Return the name of the domain in which the function competes."""
    if function.share == 0:
        return CPU
    return ANY if CPU in function.times_by_kind else ACCELERATOR


class Domain:
    """The devices, queueing policy and view that a group of competing flows shares."""

    def __init__(
        self,
        name: str,
        policy: Queueing,
        packing: Packing,
        index: DeviceIndex,
        tenant_slots: TenantSlots,
    ) -> None:
        self.name = name
        self.policy = policy
        self.devices: list[Device] = []  # those that may get work
        # A domain of both CPUs and accelerators does not pool: they do not stand in for each other.
        self.view = View(packing, index, self.devices, pools_slots=policy.pools_slots and name != ANY)
        self.tenant_slots = tenant_slots if name == CPU else None  # lists its queued calls by tenant
        self.queued = 0  # invocations in the queues of its flows
        self._last_free: Device | None = None  # where the last free slot was found, among few devices

    def add(self, devices: Iterable[Device]) -> None:
        """Add devices that may get work."""
        for device in devices:
            if self.uses(device.spec.kind):
                insort(self.devices, device, key=lambda each: each.index)
                device.freed = (*device.freed, self.view.freed)

    def remove(self, devices: Iterable[Device]) -> None:
        """Remove devices that may get no more work."""
        for device in devices:
            if self.uses(device.spec.kind):
                self.devices.remove(device)
                self._last_free = None
                self.view.freed.pop(device.index, None)
                device.freed = tuple(freed for freed in device.freed if freed is not self.view.freed)

    def devices_changed(self) -> None:
        """Tell the policy that devices were added or removed."""
        self.view.set_classes(own for own in self.view.index.classes.values() if self.uses(own.spec.kind))
        self.policy.devices_changed(self.view)

    def has_slot(self) -> bool:
        """Return whether a slot is free. Without one the policy need not be called."""
        if self.view.pools_slots:
            return self._pool_has_slot()
        if self.view.many:
            return any(own.free for own in self.view.classes)
        last = self._last_free
        if last is not None and last.running < last.slots:
            return True
        for device in self.devices:
            if device.running < device.slots:
                self._last_free = device
                return True
        return False

    def _pool_has_slot(self) -> bool:
        if self.view.many:
            return sum(own.slots - round(own.taken) for own in self.view.classes) > 0
        return sum(device.slots - device.running for device in self.devices) > 0

    def uses(self, kind: str) -> bool:
        """Return whether its flows compete for devices of this kind."""
        return self.name == ANY or (kind == CPU) == (self.name == CPU)
