"""The view that policies get of the core: its records, read-only by type, and checks for placing a sandbox.

The protocols have properties only, so `mypy --strict` refuses a policy that assigns to them. Nothing is copied. An
invocation's run time is unknown, here and in the core, until it has run.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from aliquot.core.lifecycle import HOLDS_DEVICE_MEMORY, SandboxState
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec
from aliquot.core.places import other_devices

SHARE_TOLERANCE = 1e-9  # so that three shares of 1/3 fit on one device


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
    def session(self) -> object: ...  # the session it is kept for, or None


class DeviceView(Protocol):
    """A device as policies see it."""

    @property
    def index(self) -> int: ...
    @property
    def spec(self) -> DeviceSpec: ...
    @property
    def slots(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def releases(self) -> int: ...  # number of times that a slot or memory was freed
    @property
    def shares_used(self) -> float: ...
    @property
    def utilisation(self) -> float: ...
    @property
    def free_bytes(self) -> float: ...
    @property
    def evictable_bytes(self) -> int: ...
    @property
    def resident_bytes(self) -> int: ...
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
    def swapped_out(self) -> "Sequence[SandboxView]": ...
    def idle_on(self, device: DeviceView) -> SandboxView | None: ...
    def idle_places(self) -> Sequence[tuple[DeviceView, SandboxView]]: ...
    def nearness(self, sandbox: SandboxView) -> int: ...  # to the session of its head; smaller is nearer
    def resident_on(self, device: DeviceView) -> bool: ...


class DeviceChooser(Protocol):
    """Chooses among devices. It is an object, not a function, because a view is part of a snapshot."""

    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView: ...


class _FirstDevice:
    def choose(self, _: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        return devices[0]


class HostMemoryView(Protocol):
    """The memory of the host, as far as starts depend on it."""

    def allows(self, flow: FlowView) -> bool: ...


class _UnboundedHost:
    def allows(self, _: FlowView) -> bool:
        return True


class View:
    """The time, and the devices that the flows of one domain compete for."""

    __slots__ = ("devices", "host", "now", "packing")

    def __init__(self, packing: DeviceChooser | None = None, host: HostMemoryView | None = None) -> None:
        self.now: float = 0
        self.packing: DeviceChooser = packing or _FirstDevice()  # chooses the device of a new slice
        self.host: HostMemoryView = host or _UnboundedHost()
        self.devices: Sequence[DeviceView] = ()

    def has_slot(self, flow: FlowView, device: DeviceView) -> bool:
        """Return whether fewer than D invocations run there, and the shares would add up to at most 1."""
        if device.running >= device.slots:
            return False
        return device.shares_used + flow.spec.share_on(device.spec) <= 1 + SHARE_TOLERANCE

    def can_start(self, flow: FlowView, device: DeviceView) -> bool:
        """Return whether a new sandbox of the flow can start there now, if idle sandboxes are evicted for it.

        A flow that takes several devices needs enough other devices, too.
        """
        if not self.fits(flow, device) or not self.host.allows(flow):
            return False
        share = flow.spec.share
        if share is None or share <= 1:  # quicker than `device_count`, and this is called often
            return True
        return len(other_devices(flow, device, self.devices, self.fits)) == flow.spec.device_count - 1

    def fits(self, flow: FlowView, device: DeviceView) -> bool:
        """Return whether that device alone has room for a new sandbox of the flow."""
        return (
            device.running < device.slots
            and flow.spec.memory_bytes <= device.free_bytes + device.evictable_bytes
            and self.has_slot(flow, device)
            and flow.spec.runs_on(device.spec)
        )

    def can_use(self, sandbox: SandboxView) -> bool:
        """Return whether an idle sandbox can take an invocation now."""
        flow, resident = sandbox.flow, sandbox.state in HOLDS_DEVICE_MEMORY
        for device in sandbox.devices:
            if not self.has_slot(flow, device):
                return False
            if not resident and flow.spec.memory_bytes > device.free_bytes + device.evictable_bytes:
                return False
        return True
