"""Declared devices and functions, as frozen records.

A share up to 1 is a part of one device. A whole number above 1 takes that many whole devices of one kind, and memory
sizes then apply to each of them.
"""

from math import ceil
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from aliquot.core.batch_times import expected_time

CPU = "cpu"
DEFAULT_PRICE = 1000.0  # of a second of a whole accelerator
DEFAULT_SLOT_PRICE = DEFAULT_PRICE / 60  # of a second of a slot of kind cpu
MAX_LANES = 8  # of a device that does not say how many it has
DEFAULT_TENANT = "default"
SHARE_TOLERANCE = 1e-9  # of products of shares and lanes
MAX_BATCH = 65_536  # calls that run together


class FlowKey(NamedTuple):
    """The key of a flow, which is the queue of one tenant's function."""

    tenant: str
    function: str

    def __str__(self) -> str:
        return self.function if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.function}"


class DeviceSpec(Struct, frozen=True):
    """A GPU, a virtual device, or a node's `cpu`. Its compute capacity is always 1.0."""

    name: str
    kind: str = "gpu"
    memory_bytes: int | None = None  # None means unbounded: everything stays resident
    concurrency: int = 2  # D: maximum number of invocations that run on it at once
    bandwidth_bytes_s: float | None = None  # host to device
    speed: float = 1  # relative to the device for which times are declared
    alone: bool = False  # a sandbox on it cannot use a second device
    extra_slots: int = 0  # beyond D, for tenants that hold few slots (`tenant_slots.py`); on kind cpu alone
    node: str = ""  # the node it belongs to; a machine alone has no name
    price: float | None = None  # of a second of the whole device; None means the default of its kind
    lanes: int | None = None  # runs that are planned on it at once; None means D, at most `MAX_LANES`
    movable: bool = False  # its driver can move a live sandbox to another device of this kind
    remote: bool = False  # its node is not the head's own, so it has nothing that only the head can provide

    @property
    def price_s(self) -> float:
        """Return the price of a second of the whole device."""
        if self.price is not None:
            return self.price
        return DEFAULT_SLOT_PRICE * self.concurrency if self.kind == CPU else DEFAULT_PRICE

    @property
    def lane_count(self) -> int:
        """Return the number of runs that are planned on it at once."""
        return min(self.concurrency, MAX_LANES if self.lanes is None else self.lanes)

    @property
    def class_spec(self) -> "DeviceSpec":
        """Return what it has in common with equal devices: all but its name and its node."""
        return replace(self, name="", node="")


class NodeSpec(Struct, frozen=True):
    """A machine with devices."""

    name: str
    host_memory_bytes: int | None = None  # that its sandboxes together may claim; None means no limit
    bandwidth_bytes_s: float | None = None  # from the origins of datasets; None means that data costs nothing


class Times(Struct, frozen=True):
    """The declared times of a function on one kind of device. `None` means not declared."""

    run_s: float | None = None
    cold_s: float = 0  # to start a sandbox
    load_s: float | None = None  # to load its bytes to the device
    batch_s: dict[int, float] = {}  # run times of batches by their size; `run_s` is that of one call

    def batch_run_s(self, size: int) -> float | None:
        """Return the run time of a batch of this size. Without times of batches it is in proportion to the size."""
        return None if self.run_s is None else expected_time({1: self.run_s, **self.batch_s}, size)

    def scaled(self, factor: float) -> "Times":
        """Return the same with run times that are longer by this factor."""
        if self.run_s is None:
            return self
        batch_s = {size: run_s * factor for size, run_s in self.batch_s.items()}
        return replace(self, run_s=self.run_s * factor, batch_s=batch_s)


class FunctionSpec(Struct, frozen=True):
    """A function and the resources it needs. One with a share of 0 needs no GPU and runs on the node's `cpu` device."""

    name: str
    memory_bytes: int = 0
    share: float | None = None  # guaranteed part of compute; None means 1/D of the device it gets
    times: Times = field(default_factory=Times)
    times_by_kind: dict[str, Times] = field(default_factory=dict)
    weight: float = 1  # relative to the tenant's other functions
    host_bytes: int = 0  # host memory that each of its sandboxes claims
    instances: int | None = None  # maximum number of sandboxes at once; None means no limit
    share_limit: float | None = None  # how far it may borrow under elastic sharing; None means the whole device
    datasets: tuple[str, ...] = ()  # names of the datasets it reads
    runs_ahead: bool = False  # short calls may be handed to its busy sandboxes (`ahead.py`)
    batch: int = 1  # maximum number of calls that run together (`batches.py`)
    warm: int = 0  # sandboxes that are held ready where there is room (`provisioning/`)
    run_bytes: int = 0  # device memory that it needs besides, only while a call is in flight (`run_memory.py`)
    one_per_device: bool = False  # it has at most one sandbox on a device
    needs_head: bool = False  # it needs something that only the head's own devices can provide

    def runs_on(self, device: DeviceSpec) -> bool:
        """Return whether the function can use this kind of device, whatever its size."""
        if self.needs_head and device.remote:
            return False
        if device.kind == CPU:
            return self.share == 0 or CPU in self.times_by_kind
        return self.share != 0

    @property
    def device_count(self) -> int:
        """Return the number of devices that each of its sandboxes occupies."""
        return 1 if self.share is None or self.share <= 1 else int(self.share)

    def share_on(self, device: DeviceSpec) -> float:
        """Return the share that it takes of this device. On kind cpu it takes a slot."""
        share = self.share
        if not share or device.kind == CPU:
            return 1 / device.concurrency
        return share if share <= 1 else 1.0

    def lanes_on(self, device: DeviceSpec) -> int:
        """Return the number of lanes that each of its calls takes. For a share, lanes are equal parts of the device."""
        if not self.share or device.kind == CPU:
            return 1
        return max(1, ceil(min(self.share, 1.0) * device.lane_count - SHARE_TOLERANCE))

    def times_on(self, device: DeviceSpec) -> Times:
        """Return the times declared for the device's kind, or else the general ones scaled by its speed."""
        times = self.times_by_kind.get(device.kind)
        if times is None:
            times = self.times
            if times.run_s is not None and device.speed != 1:
                times = times.scaled(1 / device.speed)
        if times.load_s is None:
            bandwidth = device.bandwidth_bytes_s
            times = replace(times, load_s=self.memory_bytes / bandwidth if bandwidth else 0)
        return times


class GraphStage(Struct, frozen=True):
    """One function of a graph, and the stages whose results it needs."""

    name: str
    function: str
    after: tuple[str, ...] = ()
    probability: float = 1  # that it runs at all; a stage that may be skipped has less than 1


class GraphSpec(Struct, frozen=True):
    """A graph of functions of one tenant that is executed as one."""

    name: str
    stages: tuple[GraphStage, ...]
