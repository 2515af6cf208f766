"""A domain: flows that compete for the same devices, with the one queueing policy that decides among them.

Functions without a GPU share compete for the `cpu` devices, the others for the accelerators, and those that
declare times for both for all. Each domain has a policy instance of its own, so that a full GPU never holds up a
CPU function, and policies need not ask which devices a flow may use.
"""

from collections.abc import Iterable

from aliquot.core.interfaces import Packing, Queueing
from aliquot.core.model import CPU, FunctionSpec
from aliquot.core.records import Device
from aliquot.core.view import View

ANY, ACCELERATOR = "any", "accelerator"


def domain_of(function: FunctionSpec) -> str:
    if function.share == 0:
        return CPU
    return ANY if CPU in function.times_by_kind else ACCELERATOR


class Domain:
    def __init__(self, name: str, policy: Queueing, packing: Packing) -> None:
        self.name = name
        self.policy = policy
        self.view = View(packing)
        self.devices: list[Device] = []
        self.queued = 0  # invocations waiting in its flows

    def set_devices(self, devices: Iterable[Device]) -> None:
        self.devices = [device for device in devices if self._has(device.spec.kind)]
        self.view.devices = self.devices
        self.policy.devices_changed(self.view)

    def has_slot(self) -> bool:
        """Whether asking the policy can lead anywhere."""
        for device in self.devices:  # asked too often for a generator  # noqa: SIM110
            if device.running < device.slots:
                return True
        return False

    def _has(self, kind: str) -> bool:
        return self.name == ANY or (kind == CPU) == (self.name == CPU)
