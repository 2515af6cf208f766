"""The view that policies get of the core: its records, read-only by type, and checks for placing a sandbox.

The protocols have properties only, so `mypy --strict` refuses a policy that assigns to them. Nothing is copied. An
invocation's run time is unknown, here and in the core, until it has run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from aliquot.core.device_index import (
    MAX_CANDIDATES,
    MAX_COMPARED,
    DeviceClass,
    DeviceGroup,
    DeviceIndex,
    level_for,
)
from aliquot.core.lifecycle import HOLDS_DEVICE_MEMORY, SandboxState
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec
from aliquot.core.places import other_devices
from aliquot.core.run_memory import room_to_run

if TYPE_CHECKING:
    from aliquot.core.device import Device
    from aliquot.core.nodes import Node

SHARE_TOLERANCE = 1e-9  # so that three shares of 1/3 fit on one device
MAX_SHARES = 1 + SHARE_TOLERANCE


class InvocationView(Protocol):
    """An invocation as policies see it."""

    @property
    def id(self) -> str: ...
    @property
    def number(self) -> int: ...  # in order of arrival
    @property
    def arrived(self) -> float: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def cost_limit(self) -> float | None: ...
    @property
    def device(self) -> "DeviceView | None": ...  # the first of its devices, once it is dispatched
    @property
    def devices(self) -> "Sequence[DeviceView]": ...
    @property
    def dispatched(self) -> float: ...
    @property
    def share(self) -> float: ...  # part of compute, summed over its devices
    @property
    def run_s(self) -> float | None: ...  # measured, once it has run
    @property
    def batch_size(self) -> int: ...  # invocations dispatched together with it, itself included


class SandboxView(Protocol):
    """A sandbox as policies see it."""

    @property
    def id(self) -> int: ...
    @property
    def flow(self) -> "FlowView": ...
    @property
    def device(self) -> "DeviceView": ...
    @property
    def devices(self) -> "Sequence[DeviceView]": ...  # `device` first; several only if the function takes whole devices
    @property
    def state(self) -> SandboxState: ...
    @property
    def evictable_bytes(self) -> int: ...  # that others may have
    @property
    def session(self) -> object: ...  # the session it is kept for, or None


class HostMemoryView(Protocol):
    """The memory of a node's host, as far as starts depend on it."""

    def allows(self, flow: "FlowView") -> bool: ...


class PlainPermits(Protocol):
    """The plan of a device, as far as plain calls depend on it."""

    def permits(self, flow: "FlowView", now: float) -> bool: ...


class DeviceView(Protocol):
    """A device as policies see it."""

    @property
    def index(self) -> int: ...
    @property
    def spec(self) -> DeviceSpec: ...
    @property
    def slots(self) -> int: ...
    @property
    def default_share(self) -> float: ...  # of a function that declares none
    @property
    def sliced(self) -> bool: ...  # declared shares count there; otherwise each call has a slot
    @property
    def running(self) -> int: ...
    @property
    def device_class(self) -> DeviceClass: ...
    @property
    def node(self) -> "Node": ...
    @property
    def host(self) -> HostMemoryView: ...  # the memory of its node
    @property
    def group(self) -> DeviceGroup: ...  # the devices of its kind on its node
    @property
    def shares_used(self) -> float: ...
    @property
    def utilisation(self) -> float: ...
    @property
    def measured_utilisation(self) -> float | None: ...
    @property
    def free_bytes(self) -> float: ...
    @property
    def evictable_bytes(self) -> int: ...
    @property
    def resident_bytes(self) -> int: ...
    @property
    def pool_full(self) -> bool: ...  # a sandbox must be stopped before another can start
    @property
    def plan(self) -> "PlainPermits | None": ...  # asked before a plain call gets a slot
    @property
    def last_dispatch(self) -> int: ...  # number of its last dispatch; -1 when it never had one


class FlowView(Protocol):
    """A flow as policies see it."""

    @property
    def index(self) -> int: ...
    @property
    def key(self) -> FlowKey: ...
    @property
    def spec(self) -> FunctionSpec: ...
    @property
    def classes(self) -> Sequence[DeviceClass]: ...  # of devices that can run it
    @property
    def weight(self) -> float: ...  # the tenant's weight times the function's
    @property
    def tenant_weight(self) -> float: ...  # set by the operator
    @property
    def queued(self) -> int: ...
    @property
    def head(self) -> InvocationView: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def run_estimate_s(self) -> float | None: ...
    @property
    def run_estimates_s(self) -> Mapping[str, float]: ...
    @property
    def mean_interarrival_s(self) -> float | None: ...
    @property
    def recent_interarrival_s(self) -> float | None: ...
    @property
    def interarrival_deviation_s(self) -> float: ...
    @property
    def last_arrival(self) -> float: ...
    @property
    def last_serviced(self) -> float: ...
    @property
    def start_estimate_s(self) -> float | None: ...  # measured cold starts
    @property
    def expected(self) -> Sequence[float]: ...  # when calls are known to come, the earliest first
    @property
    def sandboxes(self) -> "Mapping[int, SandboxView]": ...
    @property
    def sandboxes_on(self) -> Mapping[int, int]: ...  # their number by index of device, if it may have one on each
    def swapped_out(self) -> "Sequence[SandboxView]": ...
    def idle_on(self, device: DeviceView) -> SandboxView | None: ...
    def idle_places(self) -> Sequence[tuple[DeviceView, SandboxView]]: ...  # a few of them, among many devices
    def places_with_slots(self, count: int) -> Sequence[tuple[DeviceView, SandboxView]]: ...
    def nearness(self, sandbox: SandboxView) -> int: ...  # to the session of its head; smaller is nearer
    def resident_on(self, device: DeviceView) -> bool: ...
    def place_ahead(self) -> DeviceView | None: ...  # a busy sandbox there takes its head (`ahead.py`)
    def is_resident(self) -> bool: ...
    def has_swapped_out(self) -> bool: ...


class DeviceChooser(Protocol):
    """Chooses among devices. It is an object, not a function, because a view is part of a snapshot."""

    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView: ...


class _FirstDevice:
    def choose(self, _: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        return devices[0]


class View:
    """The time, and the devices that the flows of one domain compete for.

    `candidates` and `idle_places` are the places that a decision looks at. Up to `MAX_CANDIDATES` devices these are all
    there are. Among more devices they are a few, in a fixed order, so that a decision costs the same on any number.
    """

    __slots__ = (
        "classes", "devices", "devices_per_node", "expected", "freed", "index", "many", "now", "packing", "pools_slots",
    )  # fmt: skip

    def __init__(
        self,
        packing: DeviceChooser | None = None,
        index: DeviceIndex | None = None,
        devices: "Sequence[DeviceView] | None" = None,
        *,
        pools_slots: bool = False,
    ) -> None:
        self.now: float = 0
        self.pools_slots = pools_slots  # the domain counts slots over all its devices together
        self.packing: DeviceChooser = packing or _FirstDevice()  # chooses the device of a new slice
        self.index = DeviceIndex() if index is None else index
        self.devices: Sequence[DeviceView] = () if devices is None else devices  # that may get work
        self.classes: Sequence[DeviceClass] = ()  # of these devices
        self.many = False  # whether there are too many to look at each of them
        self.devices_per_node = 1.0  # mean over the nodes, or 1 without any
        self.expected: dict[int, FlowView] = {}  # flows of which calls are known to come
        self.freed: dict[int, Device] = {}  # devices where a slot or memory was freed since the policy last chose

    def set_classes(self, classes: Iterable[DeviceClass]) -> None:
        """Record that the devices have changed, and which classes they are of."""
        self.classes = list(classes)
        self.many = len(self.devices) > MAX_CANDIDATES
        self.devices_per_node = max(1.0, len(self.devices) / max(1, len(self.index.nodes)))

    # --- places to look at ------------------------------------------------------------------------------

    def candidates(self, flow: FlowView) -> Sequence[DeviceView]:
        """Return the devices to look at for a new sandbox of the flow.

        Among many devices they all have room for it. For a flow without a declared share the devices with the most free
        compute come first. A slice also goes where compute is already in use, so that whole devices stay free.
        """
        if not self.many:
            return self.devices
        return self._few_devices(flow) if flow.spec.device_count == 1 else self._few_groups(flow)

    def idle_places(self, flow: FlowView) -> Sequence[tuple[DeviceView, SandboxView]]:
        """Return the places to look at where the flow has an idle sandbox, with that sandbox.

        Among many devices they all have a free slot.
        """
        if not self.many:
            return flow.idle_places()
        free = sum(own.free for own in flow.classes)
        if free > MAX_COMPARED:
            found = flow.places_with_slots(MAX_COMPARED)
            if found or free > MAX_CANDIDATES:
                return found
        devices = (device for own in flow.classes for device in own.emptiest())
        places = [(device, sandbox) for device in devices if (sandbox := flow.idle_on(device)) is not None]
        return sorted(places, key=lambda place: flow.nearness(place[1]))

    def _few_devices(self, flow: FlowView) -> list[DeviceView]:
        classes, spec = flow.classes, flow.spec
        if len(classes) > MAX_CANDIDATES:  # begin with another class for each call
            first = (flow.head.number if flow.queued else flow.index) % len(classes)
            classes = [*classes[first:], *classes[:first]][:MAX_CANDIDATES]
        looked_at = MAX_CANDIDATES // max(1, len(classes))
        compared = max(2, MAX_COMPARED // max(1, len(classes)))
        found: dict[int, DeviceView] = {}
        if spec.datasets:
            self._take(flow, self._near_data(spec), MAX_CANDIDATES // 2, MAX_COMPARED // 2, found)
        for own in classes:
            lowest = level_for(spec.share_on(own.spec))
            if spec.share:
                self._take(flow, own.fullest(lowest), looked_at // 2, compared // 2, found)
                self._take(flow, own.emptiest(lowest), looked_at // 2, compared // 2, found)
            else:
                self._take(flow, own.emptiest(lowest), looked_at, compared, found)
        return list(found.values())

    def _take(
        self, flow: FlowView, devices: "Iterable[Device]", looked_at: int, wanted: int, found: dict[int, DeviceView]
    ) -> None:
        """Add the first devices that have room, so many of those looked at."""
        for device in islice(devices, max(1, looked_at)):
            if self.fits(flow, device):
                found[device.index] = device
                wanted -= 1
                if wanted <= 0:
                    return

    def _near_data(self, spec: FunctionSpec) -> "Iterator[Device]":
        """Iterate over the devices of nodes that hold data of the function."""
        nodes = (node for name in spec.datasets for node in self.index.datasets.holders(name).values())
        return chain.from_iterable(node.devices.values() for node in nodes)

    def _few_groups(self, flow: FlowView) -> list[DeviceView]:
        """Return the first devices of places for a flow that takes several whole devices."""
        kinds = dict.fromkeys(own.spec.kind for own in flow.classes)
        groups = chain.from_iterable(self.index.groups_with(kind, flow.spec.device_count) for kind in kinds)
        found: list[DeviceView] = []
        for group in islice(groups, MAX_CANDIDATES):
            first = next((device for device in group.first_idle(MAX_COMPARED) if self.can_start(flow, device)), None)
            if first is not None:
                found.append(first)
                if len(found) == MAX_COMPARED:
                    break
        return found

    def free_devices(self) -> Sequence[DeviceView]:
        """Return the devices to look at for any flow: those with a free slot, or among many a few of each class."""
        if not self.many:
            return [device for device in self.devices if device.running < device.slots]
        count = max(1, MAX_COMPARED // len(self.classes))
        return [device for own in self.classes[:MAX_CANDIDATES] for device in islice(own.emptiest(), count)]

    # --- checks -----------------------------------------------------------------------------------------

    def data_s(self, flow: FlowView, device: DeviceView) -> float:
        """Return the seconds to bring what the node of the device lacks of the flow's datasets."""
        datasets = flow.spec.datasets
        return self.index.datasets.transfer_s(datasets, device.node) if datasets else 0.0

    def busy_fraction(self) -> float:
        """Return the fraction of the slots that is taken."""
        taken = slots = 0.0
        if self.many:
            for own in self.classes:
                taken += own.taken
                slots += own.slots
            return taken / slots
        for device in self.devices:
            running, of_device = device.running, device.slots
            if running:
                shares = device.shares_used * of_device  # it differs from the number that runs if shares are declared
                taken += max(running, shares)
            slots += of_device
        return taken / slots

    def could_hold(self, flow: FlowView, device: DeviceView) -> bool:
        """Return whether the flow could ever be on that device, with enough others if it takes several."""
        if device.device_class not in flow.classes:
            return False
        count = flow.spec.device_count
        return count == 1 or count <= sum(other.device_class in flow.classes for other in device.group.devices.values())

    def others(self, flow: FlowView, device: DeviceView) -> "tuple[DeviceView, ...]":
        """Return the devices that complete the flow's place after this one, or fewer when too few fit now."""
        near = device.group.first_idle(MAX_CANDIDATES) if self.many else self.devices
        return other_devices(flow, device, near, self.fits)

    def has_slot(self, flow: FlowView, device: DeviceView) -> bool:
        """Return whether fewer than D invocations run there, and the shares would add up to at most 1."""
        if device.running >= device.slots:
            return False
        share = flow.spec.share
        needed = min(share, 1.0) if share and device.sliced else device.default_share
        if device.shares_used + needed > MAX_SHARES:
            return False
        return device.plan is None or device.plan.permits(flow, self.now)

    def can_start(self, flow: FlowView, device: DeviceView) -> bool:
        """Return whether a new sandbox of the flow can start there now, if idle sandboxes are evicted for it.

        A flow that takes several devices needs enough other devices, too.
        """
        if not self.fits(flow, device) or not device.host.allows(flow):
            return False
        share = flow.spec.share
        # Quicker than `device_count`, and this is called often.
        return share is None or share <= 1 or len(self.others(flow, device)) == flow.spec.device_count - 1

    def fits(self, flow: FlowView, device: DeviceView) -> bool:
        """Return whether that device alone has room for a new sandbox of the flow."""
        if device.running >= device.slots:
            return False
        spec = flow.spec
        return (
            spec.memory_bytes + spec.run_bytes <= device.free_bytes + device.evictable_bytes
            and self.has_slot(flow, device)
            and spec.runs_on(device.spec)
            and not (spec.one_per_device and device.index in flow.sandboxes_on)
        )

    def can_use(self, sandbox: SandboxView) -> bool:
        """Return whether an idle sandbox can take an invocation now.

        With pooled slots a full device will do, unless the flow has declared a share, which is guaranteed.
        """
        spec = sandbox.flow.spec
        share = spec.share
        if share is not None or not self.pools_slots:
            for device in sandbox.devices:  # as in `has_slot`, but quicker
                needed_share = min(share, 1.0) if share and device.sliced else device.default_share
                if device.running >= device.slots or device.shares_used + needed_share > MAX_SHARES:
                    return False
        for device in sandbox.devices:
            if device.plan is not None and not device.plan.permits(sandbox.flow, self.now):
                return False
        return (sandbox.state in HOLDS_DEVICE_MEMORY and not spec.run_bytes) or room_to_run(sandbox)
