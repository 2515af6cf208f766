"""The registry of nodes, devices, tenants' weights, flows, and the domains that flows compete in."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from aliquot.core.device import Device
from aliquot.core.device_index import MAX_CANDIDATES, DeviceIndex
from aliquot.core.domain import Domain, domain_of
from aliquot.core.errors import EventError
from aliquot.core.fit import misfit
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Eviction, Packing, Queueing
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec, NodeSpec
from aliquot.core.nodes import Node
from aliquot.core.records import SessionState
from aliquot.core.run_memory import sandboxes_by_device
from aliquot.core.tenant_slots import TenantSlots
from aliquot.core.validate import device_problems


class Registry:
    """Holds the nodes, devices, flows and domains, and keeps them consistent when one is added or removed."""

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
        self.refitted: dict[int, Flow] = {}  # flows that have become misfits, or are misfits no longer
        self._whole: dict[int, Flow] = {}  # flows that take several whole devices
        self.domains: dict[str, Domain] = {}
        self.tenant_weights: dict[str, float] = {}
        self.nodes: dict[str, Node] = {}
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

    def measured(self, device: str, utilisation: float) -> None:
        """Record the utilisation of a device, as its driver measured it."""
        self.device(device).measured_utilisation = utilisation

    def flow(self, tenant: str, function: str) -> Flow:
        flow = self.flows.get(FlowKey(tenant, function))
        if flow is None:
            raise EventError(f"tenant {tenant} has no function {function}")
        return flow

    def node(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            raise EventError(f"there is no node '{name}'; there are {len(self.nodes)} others")
        return node

    def data_node(self, flow: Flow | None, session: SessionState | None) -> str:
        """Return the node where the next call of a session or flow will probably run: the last one, or the cheapest."""
        if len(self.nodes) == 1:
            return next(iter(self.nodes))
        if session is not None and session.kept:
            return next(reversed(session.kept.values())).device.spec.node
        if flow is None:
            return next((node.spec.name for node in self.nodes.values() if node.open), "")
        for device, _ in flow.idle_places():
            return device.spec.node
        view = flow.domain.view
        devices = islice(view.candidates(flow), MAX_CANDIDATES)
        best = min(devices, key=lambda device: view.data_s(flow, device), default=None)
        return best.spec.node if best is not None else self.data_node(None, None)

    def any_node(self) -> str:
        """Return the node where a session that has had no call yet will probably read."""
        return self.data_node(None, None)

    def add_node(self, spec: NodeSpec, devices: Sequence[DeviceSpec]) -> None:
        """Add a node with its devices."""
        if spec.name in self.nodes:
            raise EventError(f"there is a node '{spec.name}' already")
        if spec.host_memory_bytes is not None and spec.host_memory_bytes < 0:
            raise EventError(f"node {spec.name}: a host cannot have {spec.host_memory_bytes} bytes of memory")
        for device in devices:
            if device.node != spec.name:
                raise EventError(f"device {device.name}: it belongs to node '{device.node}', not to '{spec.name}'")
        self._check(devices)
        node = self.nodes[spec.name] = Node(spec, self.tenant_flows)
        if spec.host_memory_bytes is not None:
            node.host.bound(spec.host_memory_bytes, self.make_eviction())
        self.add_devices(devices)

    def add_devices(self, specs: Sequence[DeviceSpec]) -> None:
        """Add devices to their nodes. A node that is not known yet has no limits."""
        self._check(specs)
        added = [self._make_device(spec) for spec in specs]
        self._open_devices([device for device in added if device.node.open])

    def _check(self, specs: Sequence[DeviceSpec]) -> None:
        names = [spec.name for spec in specs]
        for spec in specs:
            if spec.name in self.devices or names.count(spec.name) > 1:
                raise EventError(f"there is a device {spec.name} already")
            for problem in device_problems(spec):
                raise EventError(f"device {spec.name}: {problem}")

    def _make_device(self, spec: DeviceSpec) -> Device:
        node = self._known_node(spec.node)
        tenant_slots = self.tenant_slots if spec.extra_slots else None
        orders = self.make_eviction(), self.make_eviction()
        device = Device(self._devices_seen, spec, node, self._pool_slots, *orders, tenant_slots)
        self.devices[spec.name] = node.devices[spec.name] = device
        self._devices_seen += 1
        return device

    def _known_node(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(NodeSpec(name), self.tenant_flows)
        return node

    def remove_devices(self, devices: Sequence[Device]) -> None:
        for device in devices:
            del self.devices[device.spec.name], device.node.devices[device.spec.name]
            for flow in device.flows.values():
                flow.idle_by_device.pop(device.index, None)
        self._close_devices([device for device in devices if device.slots])

    def remove_node(self, node: Node) -> None:
        """Remove a node that is lost, with its devices."""
        self.index.datasets.node_lost(node)
        self.remove_devices(list(node.devices.values()))
        del self.nodes[node.spec.name]

    def update_node(self, node: Node) -> None:
        """Let the devices of the node get work, or not, after its state has changed."""
        if node.open:
            self._open_devices([device for device in node.devices.values() if not device.slots])
        else:
            self._close_devices([device for device in node.devices.values() if device.slots])

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
                name, self._make_queueing(name), self._packing, self.index, self.tenant_slots
            )
            domain.view.now = now
            domain.add(device for own in self.index.classes.values() for device in own.devices.values())
            domain.devices_changed()
        return domain

    def open(self, key: FlowKey, function: FunctionSpec, domain: Domain) -> Flow:
        flow = self.flows[key] = Flow(self._flows_seen, key, function, domain)
        self.tenant_flows.setdefault(key.tenant, {})[flow.index] = flow
        self._flows_seen += 1
        flow.set_many(many=domain.view.many)
        self.set_function(flow, function)
        domain.policy.opened(flow, domain.view)
        return flow

    def set_function(self, flow: Flow, function: FunctionSpec) -> None:
        """Set the flow's function, and forget the run times of an older version."""
        flow.spec = function
        flow.sandboxes_on = sandboxes_by_device(flow) if function.one_per_device else {}
        self._packing.opened(flow)
        _set_weights(flow, self.tenant_weights.get(flow.key.tenant, 1))
        flow.forget_runs()
        flow.add_priors(flow.domain.view.classes)
        self._fit(flow)

    def close(self, flow: Flow) -> None:
        flow.closed = True
        self._packing.closed(flow)
        del self.flows[flow.key]
        own = self.tenant_flows[flow.key.tenant]
        del own[flow.index]
        if not own:
            del self.tenant_flows[flow.key.tenant]
        self.misfits.pop(flow.index, None)
        self._whole.pop(flow.index, None)
        self.refitted.pop(flow.index, None)
        flow.domain.view.expected.pop(flow.index, None)
        flow.domain.policy.closed(flow, flow.domain.view)

    def bound_host_memory(self, name: str, limit: int) -> None:
        """Limit the host memory that all sandboxes of the node together may claim."""
        node = self._known_node(name)
        node.host.check(limit)
        opened = [device for device in node.devices.values() if device.slots]
        self._close_devices(opened)
        node.host.bound(limit, self.make_eviction())
        self._open_devices(opened)

    def _open_devices(self, devices: Sequence[Device]) -> None:
        """Let these devices get work."""
        new_class = False
        for device in devices:
            device.slots = device.max_slots
            new_class |= self.index.add(device)
            if device.tenant_slots is not None:
                device.tenant_slots.add_device(device)
        for domain in self.domains.values():
            domain.add(devices)
        self._devices_changed(classes_changed=new_class)

    def _close_devices(self, devices: Sequence[Device]) -> None:
        """Let these devices get no more work."""
        lost_class = False
        for device in devices:
            lost_class |= self.index.remove(device)
            if device.tenant_slots is not None:
                device.tenant_slots.remove_device(device)
            device.slots = 0
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
        before = flow.misfit
        flow.classes = [own for own in self.index.classes.values() if own.could_run(spec)]
        if spec.device_count > 1:
            self._whole[flow.index] = flow
        else:
            self._whole.pop(flow.index, None)
        if spec.device_count == 1 and flow.classes:
            flow.misfit = None
        else:
            devices = [device.spec for own in self.index.classes.values() for device in own.devices.values()]
            flow.misfit = misfit(spec, devices, self.index.host_limit())
        if flow.misfit is None:
            self.misfits.pop(flow.index, None)
        else:
            self.misfits[flow.index] = flow
        if (before is None) != (flow.misfit is None):
            self.refitted[flow.index] = flow


def _set_weights(flow: Flow, tenant_weight: float) -> None:
    flow.tenant_weight = tenant_weight
    flow.weight = tenant_weight * flow.spec.weight
