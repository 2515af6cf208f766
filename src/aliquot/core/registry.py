"""The registry of devices, tenants' weights, flows, and the domains that flows compete in."""

from collections.abc import Callable, Sequence
from typing import Any

from aliquot.core.device import Device
from aliquot.core.device_index import DeviceIndex
from aliquot.core.domain import Domain, domain_of
from aliquot.core.errors import EventError
from aliquot.core.fit import misfit, misfit_on
from aliquot.core.flow import Flow
from aliquot.core.host_memory import HostMemory
from aliquot.core.interfaces import Eviction, Packing, Queueing
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec
from aliquot.core.tenant_slots import TenantSlots
from aliquot.core.validate import device_problems


class Registry:
    """Holds the devices, flows and domains, and keeps them consistent when one is added or removed."""

    def __init__(
        self,
        make_queueing: Callable[[str], Queueing],
        make_eviction: Callable[[], Eviction[Any]],
        packing: Packing,
        pool_slots: int | None,
    ) -> None:
        self.devices: dict[str, Device] = {}
        self.flows: dict[tuple[str, str], Flow] = {}  # by `FlowKey`, or by a plain pair, which is quicker to make
        self.index = DeviceIndex()
        self.tenant_flows: dict[str, dict[int, Flow]] = {}
        self.misfits: dict[int, Flow] = {}  # flows that no device can ever run
        self._whole: dict[int, Flow] = {}  # flows that take several whole devices
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
        tenant_slots = self.tenant_slots if spec.extra_slots else None
        orders = self.make_eviction(), self.make_eviction()
        device = Device(self._devices_seen, spec, self._pool_slots, *orders, tenant_slots)
        self.devices[spec.name] = device
        if tenant_slots is not None:
            tenant_slots.add_device(device)
        self._devices_seen += 1
        self._open_devices([device])

    def remove_device(self, device: Device) -> None:
        del self.devices[device.spec.name]
        if device.tenant_slots is not None:
            device.tenant_slots.remove_device(device)
        for flow in device.flows.values():
            flow.idle_by_device.pop(device.index, None)
        self._close_devices([device])

    def set_weight(self, tenant: str, weight: float) -> None:
        if not weight > 0:
            raise EventError(f"tenant {tenant}: weight {weight} is not above 0")
        self.tenant_weights[tenant] = weight
        for flow in self.tenant_flows.get(tenant, {}).values():
            _set_weights(flow, weight)

    def domain(self, function: FunctionSpec, *, now: float) -> Domain:
        """Return the domain that the function competes in, and create it for its first function."""
        name = domain_of(function)
        domain = self.domains.get(name)
        if domain is None:
            domain = self.domains[name] = Domain(
                name, self._make_queueing(name), self._packing, self.index, self.host, self.tenant_slots
            )
            domain.view.now = now
            domain.add(device for own in self.index.classes.values() for device in own.devices.values())
            domain.devices_changed()
        return domain

    def open(self, key: FlowKey, function: FunctionSpec, domain: Domain) -> Flow:
        flow = self.flows[key] = Flow(self._flows_seen, key, function, domain)
        self.tenant_flows.setdefault(key.tenant, {})[flow.index] = flow
        self._flows_seen += 1
        self.host.flow_opened(key.tenant)
        flow.set_many(many=domain.view.many)
        self.set_function(flow, function)
        domain.policy.opened(flow, domain.view)
        return flow

    def set_function(self, flow: Flow, function: FunctionSpec) -> None:
        """Set the flow's function, and forget the run times of an older version."""
        flow.spec = function
        self._packing.opened(flow)
        _set_weights(flow, self.tenant_weights.get(flow.key.tenant, 1))
        flow.forget_runs()
        flow.add_priors(flow.domain.view.classes)
        self._fit(flow)

    def close(self, flow: Flow) -> None:
        flow.closed = True
        self.host.flow_closed(flow.key.tenant)
        self._packing.closed(flow)
        del self.flows[flow.key]
        own = self.tenant_flows[flow.key.tenant]
        del own[flow.index]
        if not own:
            del self.tenant_flows[flow.key.tenant]
        self.misfits.pop(flow.index, None)
        self._whole.pop(flow.index, None)
        flow.domain.policy.closed(flow, flow.domain.view)

    def bound_host_memory(self, limit: int) -> None:
        """Limit the host memory that all sandboxes together may claim."""
        self.host.bound(limit, self.make_eviction())
        for flow in self.flows.values():
            self._fit(flow)

    def _open_devices(self, devices: Sequence[Device]) -> None:
        """Let these devices get work."""
        new_class = False
        for device in devices:
            new_class |= self.index.add(device)
        for domain in self.domains.values():
            domain.add(devices)
        self._devices_changed(classes_changed=new_class)

    def _close_devices(self, devices: Sequence[Device]) -> None:
        """Let these devices get no more work."""
        lost_class = False
        for device in devices:
            lost_class |= self.index.remove(device)
        for domain in self.domains.values():
            domain.remove(devices)
        self._devices_changed(classes_changed=lost_class)

    def _devices_changed(self, *, classes_changed: bool) -> None:
        self.index.relist()
        for domain in self.domains.values():
            many = domain.view.many
            domain.devices_changed()
            if domain.view.many != many:
                for flow in self.flows.values():
                    if flow.domain is domain:
                        flow.set_many(many=not many)
        # Another device of a known class changes nothing for a function that takes one device.
        for flow in self.flows.values() if classes_changed else [*self._whole.values(), *self.misfits.values()]:
            self._fit(flow)
            flow.add_priors(flow.domain.view.classes)

    def _fit(self, flow: Flow) -> None:
        """Find the classes of devices that can run the flow, and say why if there are none."""
        spec = flow.spec
        flow.classes = [own for own in self.index.classes.values() if misfit_on(spec, own.spec) is None]
        if spec.device_count > 1:
            self._whole[flow.index] = flow
        else:
            self._whole.pop(flow.index, None)
        fits_host = self.host.limit is None or spec.host_bytes <= self.host.limit
        if spec.device_count == 1 and flow.classes and fits_host:
            flow.misfit = None
        else:
            devices = (device for own in self.index.classes.values() for device in own.devices.values())
            flow.misfit = misfit(spec, [device.spec for device in devices], self.host.limit)
        if flow.misfit is None:
            self.misfits.pop(flow.index, None)
        else:
            self.misfits[flow.index] = flow


def _set_weights(flow: Flow, tenant_weight: float) -> None:
    flow.tenant_weight = tenant_weight
    flow.weight = tenant_weight * flow.spec.weight
