"""The registry of devices, tenants' weights, flows, and the domains that flows compete in."""

from collections.abc import Callable

from aliquot.core.device import Device
from aliquot.core.domain import Domain, domain_of
from aliquot.core.errors import EventError
from aliquot.core.fit import misfit
from aliquot.core.flow import Flow
from aliquot.core.host_memory import HostMemory
from aliquot.core.interfaces import Eviction, Packing, Queueing
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec
from aliquot.core.records import Sandbox
from aliquot.core.tenant_slots import TenantSlots
from aliquot.core.validate import device_problems


class Registry:
    """Holds the devices, flows and domains, and keeps them consistent when one is added or removed."""

    def __init__(
        self,
        make_queueing: Callable[[str], Queueing],
        make_eviction: Callable[[], Eviction[Sandbox]],
        packing: Packing,
        pool_slots: int | None,
    ) -> None:
        self.devices: dict[str, Device] = {}
        self.flows: dict[tuple[str, str], Flow] = {}  # by `FlowKey`, or by a plain pair, which is quicker to make
        self.domains: dict[str, Domain] = {}
        self.tenant_weights: dict[str, float] = {}
        self.host = HostMemory()
        self.tenant_slots = TenantSlots()
        self._make_queueing = make_queueing
        self.make_eviction = make_eviction
        self._packing = packing
        self._pool_slots = pool_slots
        self._devices_seen = self._flows_seen = 0

    def device(self, name: str) -> Device:
        device = self.devices.get(name)
        if device is None:
            raise EventError(f"there is no device {name}; there are {', '.join(self.devices) or 'none'}")
        return device

    def flow(self, tenant: str, function: str) -> Flow:
        flow = self.flows.get(FlowKey(tenant, function))
        if flow is None:
            raise EventError(f"tenant {tenant} has no function {function}")
        return flow

    def add_device(self, spec: DeviceSpec) -> None:
        if spec.name in self.devices:
            raise EventError(f"there is a device {spec.name} already")
        for problem in device_problems(spec):
            raise EventError(f"device {spec.name}: {problem}")
        slots = spec.concurrency
        if self._pool_slots is not None and spec.memory_bytes is not None:
            slots = min(slots, self._pool_slots)  # an invocation in flight needs a pool slot, too
        tenant_slots = self.tenant_slots if spec.extra_slots else None
        device = Device(self._devices_seen, spec, slots, self.make_eviction(), self.make_eviction(), tenant_slots)
        self.devices[spec.name] = device
        if tenant_slots is not None:
            tenant_slots.add_device(device)
        self._devices_seen += 1
        self._devices_changed()

    def remove_device(self, device: Device) -> None:
        del self.devices[device.spec.name]
        if device.tenant_slots is not None:
            device.tenant_slots.remove_device(device)
        for flow in self.flows.values():
            flow.idle_by_device.pop(device.index, None)
        self._devices_changed()

    def set_weight(self, tenant: str, weight: float) -> None:
        if not weight > 0:
            raise EventError(f"tenant {tenant}: weight {weight} is not above 0")
        self.tenant_weights[tenant] = weight
        for flow in self.flows.values():
            if flow.key.tenant == tenant:
                _set_weights(flow, weight)

    def domain(self, function: FunctionSpec, *, now: float) -> Domain:
        """Return the domain that the function competes in, and create it for its first function."""
        name = domain_of(function)
        domain = self.domains.get(name)
        if domain is None:
            domain = self.domains[name] = Domain(
                name, self._make_queueing(name), self._packing, self.host, self.tenant_slots
            )
            domain.view.now = now
            domain.set_devices(self.devices.values())
        return domain

    def open(self, key: FlowKey, function: FunctionSpec, domain: Domain) -> Flow:
        flow = self.flows[key] = Flow(self._flows_seen, key, function, domain)
        self._flows_seen += 1
        self.host.flow_opened(key.tenant)
        self.set_function(flow, function)
        domain.policy.opened(flow, domain.view)
        return flow

    def set_function(self, flow: Flow, function: FunctionSpec) -> None:
        """Set the flow's function, and forget the run times of an older version."""
        flow.spec = function
        self._packing.opened(flow)
        _set_weights(flow, self.tenant_weights.get(flow.key.tenant, 1))
        flow.forget_runs()
        flow.add_priors(flow.domain.devices)
        flow.misfit = self._misfit(flow)

    def close(self, flow: Flow) -> None:
        flow.closed = True
        self.host.flow_closed(flow.key.tenant)
        self._packing.closed(flow)
        del self.flows[flow.key]
        flow.domain.policy.closed(flow, flow.domain.view)

    def bound_host_memory(self, limit: int) -> None:
        """Limit the host memory that all sandboxes together may claim."""
        self.host.bound(limit, self.make_eviction())
        for flow in self.flows.values():
            flow.misfit = self._misfit(flow)

    def _devices_changed(self) -> None:
        for domain in self.domains.values():
            domain.set_devices(self.devices.values())
        for flow in self.flows.values():
            flow.misfit = self._misfit(flow)
            flow.add_priors(flow.domain.devices)

    def _misfit(self, flow: Flow) -> str | None:
        return misfit(flow.spec, [device.spec for device in self.devices.values()], self.host.limit)


def _set_weights(flow: Flow, tenant_weight: float) -> None:
    flow.tenant_weight = tenant_weight
    flow.weight = tenant_weight * flow.spec.weight
