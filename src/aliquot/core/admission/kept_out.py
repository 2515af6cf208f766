"""Queued calls that have no room because of pinned sandboxes: after a while a device promises nothing until they ran.

Pinned sandboxes are not evicted, and each new promise may pin them again. So a call of another function could wait for
ever for their memory.
"""

from typing import TYPE_CHECKING

from aliquot.core.admission.sandbox_choice import can_have_new

if TYPE_CHECKING:
    from aliquot.core.admission.lanes import DevicePlan
    from aliquot.core.admission.plan import Plan
    from aliquot.core.flow import Flow
    from aliquot.core.registry import Registry

MAX_WAIT_S = 10.0
LOOK_EVERY_S = 1.0


class KeptOutCalls:
    """Closes devices to new promises while a call waits that their pinned sandboxes have kept out for too long."""

    def __init__(self, plan: "Plan", registry: "Registry") -> None:
        self._plan = plan
        self._registry = registry
        self._looked_at: float | None = None

    def look(self, now: float) -> None:
        """Close devices on which a call was kept out for too long. This takes place once a second."""
        if not self._plan.devices or (self._looked_at is not None and now < self._looked_at + LOOK_EVERY_S):
            return
        self._looked_at = now
        for flow in self._registry.flows.values():
            if flow.queue:
                self._close_for(flow, now)

    def _close_for(self, flow: "Flow", now: float) -> None:
        first = next(iter(flow.queue.values()))
        if now - first.arrived < MAX_WAIT_S:
            return
        devices = [device for device in flow.domain.devices if device.device_class in flow.classes]
        if any(flow.resident_on(device) or can_have_new(flow, device, now) for device in devices):
            return  # it waits for a slot
        plans = [found for device in devices if (found := device.plan) is not None and _pinned_bytes(found)]
        if plans and not any(found.is_closed() for found in plans):
            max(plans, key=_pinned_bytes).closed_for = first


def _pinned_bytes(found: "DevicePlan") -> int:
    return sum(sandbox.bytes + 1 for lane in found.lanes for sandbox in lane.sandboxes.values())
