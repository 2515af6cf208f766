"""A domain: flows that compete for the same devices, and the queueing policy that decides among them.

Functions without a GPU share compete for the `cpu` devices, and the others for the accelerators. Functions that declare
times for both compete for all devices. Each domain has its own policy instance, so a full GPU never delays a CPU
function, and a policy need not check which devices a flow may use.
"""

from collections.abc import Iterable

from aliquot.core.device import Device
from aliquot.core.host_memory import HostMemory
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
        self, name: str, policy: Queueing, packing: Packing, host: HostMemory, tenant_slots: TenantSlots
    ) -> None:
        self.name = name
        self.policy = policy
        self.view = View(packing, host)
        self.tenant_slots = tenant_slots if name == CPU else None  # lists its queued calls by tenant
        self.devices: list[Device] = []
        self.queued = 0  # invocations in the queues of its flows

    def set_devices(self, devices: Iterable[Device]) -> None:
        self.devices = [device for device in devices if self._uses(device.spec.kind)]
        self.view.devices = self.devices
        self.policy.devices_changed(self.view)

    def has_slot(self) -> bool:
        """Return whether any device has a free slot. Without one the policy need not be called."""
        for device in self.devices:  # a generator would be slower  # noqa: SIM110
            if device.running < device.slots:
                return True
        return False

    def _uses(self, kind: str) -> bool:
        return self.name == ANY or (kind == CPU) == (self.name == CPU)
