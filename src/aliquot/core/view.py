"""What policies see: the records of the core, read-only by type, and the questions a placement asks.

The protocols have properties only, so `mypy --strict` refuses a policy that assigns to them; nothing is copied.
An invocation's actual run time is not here before it has run, nor anywhere in the core: nobody knows it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from aliquot.core.lifecycle import HOLDS_DEVICE_MEMORY, SandboxState
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec
from aliquot.core.places import other_devices

SHARE_TOLERANCE = 1e-9  # three thirds are a whole


class InvocationView(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def number(self) -> int: ...  # counts up in order of arrival
    @property
    def arrived(self) -> float: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def cost_limit(self) -> float | None: ...
    @property
    def device(self) -> "DeviceView | None": ...  # once it is dispatched: the first of those
    @property
    def devices(self) -> "Sequence[DeviceView]": ...
    @property
    def dispatched(self) -> float: ...
    @property
    def share(self) -> float: ...  # of all its devices
    @property
    def run_s(self) -> float | None: ...  # once it has run, as measured


class SandboxView(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def flow(self) -> "FlowView": ...
    @property
    def device(self) -> "DeviceView": ...
    @property
    def devices(self) -> "Sequence[DeviceView]": ...  # that one first; more where whole devices are asked for
    @property
    def state(self) -> SandboxState: ...
    @property
    def session(self) -> object: ...  # that holds it; None: nobody does


class DeviceView(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def spec(self) -> DeviceSpec: ...
    @property
    def slots(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def freed(self) -> int: ...  # how often a slot or memory has been given back: more may fit than before
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
    def last_dispatch(self) -> int: ...  # counts up; -1 when it never had one


class FlowView(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def key(self) -> FlowKey: ...
    @property
    def spec(self) -> FunctionSpec: ...
    @property
    def weight(self) -> float: ...  # on one level: the tenant's times its own
    @property
    def tenant_weight(self) -> float: ...  # the operator's
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
    def nearness(self, sandbox: SandboxView) -> int: ...  # to the session of its head: less is nearer
    def resident_on(self, device: DeviceView) -> bool: ...


class Packs(Protocol):
    """An object, not a function of one: a view is part of a snapshot."""

    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView: ...


class _First:
    def choose(self, _: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        return devices[0]


class View:
    """The devices that a group of flows competes for, and the time."""

    __slots__ = ("devices", "now", "packing")

    def __init__(self, packing: Packs | None = None) -> None:
        self.now: float = 0
        self.packing: Packs = packing or _First()  # which of several devices with room a new slice goes to
        self.devices: Sequence[DeviceView] = ()

    def has_slot(self, flow: FlowView, device: DeviceView) -> bool:
        """Fewer than D run there and the shares add up to at most 1."""
        if device.running >= device.slots:
            return False
        return device.shares_used + flow.spec.share_on(device.spec) <= 1 + SHARE_TOLERANCE

    def can_start(self, flow: FlowView, device: DeviceView) -> bool:
        """Whether a new sandbox of the flow may start there now; what is idle makes room, what runs does not.

        One that takes several devices may start on this and others beside it.
        """
        if not self.fits(flow, device):
            return False
        share = flow.spec.share
        if share is None or share <= 1:  # asked for too often for `device_count`
            return True
        return len(other_devices(flow, device, self.devices, self.fits)) == flow.spec.device_count - 1

    def fits(self, flow: FlowView, device: DeviceView) -> bool:
        """Whether that device, for itself, has room for a new sandbox of the flow."""
        return (
            device.running < device.slots
            and flow.spec.memory_bytes <= device.free_bytes + device.evictable_bytes
            and self.has_slot(flow, device)
            and flow.spec.runs_on(device.spec)
        )

    def can_use(self, sandbox: SandboxView) -> bool:
        """Whether an idle sandbox may take an invocation now."""
        flow, resident = sandbox.flow, sandbox.state in HOLDS_DEVICE_MEMORY
        for device in sandbox.devices:
            if not self.has_slot(flow, device):
                return False
            if not resident and flow.spec.memory_bytes > device.free_bytes + device.evictable_bytes:
                return False
        return True
