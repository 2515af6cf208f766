"""What people declare: devices and functions, as frozen records.

A share up to 1 is a part of one device. A whole number above that takes as many whole devices of one kind, and what is
said of memory is said of each of them.
"""

from typing import NamedTuple

from msgspec import Struct, field

CPU = "cpu"
DEFAULT_TENANT = "default"


class FlowKey(NamedTuple):
    """A flow is the queue of one tenant's function."""

    tenant: str
    function: str

    def __str__(self) -> str:
        return self.function if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.function}"


class DeviceSpec(Struct, frozen=True):
    """A GPU, a virtual one, or a node's `cpu`; its compute capacity is always 1.0."""

    name: str
    kind: str = "gpu"
    memory_bytes: int | None = None  # None: unbounded, everything stays resident
    concurrency: int = 2  # D: how many invocations may run on it at once
    bandwidth_bytes_s: float | None = None  # host to device
    speed: float = 1  # relative to the device that declared times refer to
    alone: bool = False  # whoever is on it can be on no other device beside it


class Times(Struct, frozen=True):
    """How long a function takes on one kind of device; `None` means nobody said."""

    run_s: float | None = None
    cold_s: float = 0  # to start a sandbox
    load_s: float | None = None  # to bring its bytes to the device


class FunctionSpec(Struct, frozen=True):
    """A function and what it needs. A share of 0 asks for no GPU: it runs on the node's `cpu` device."""

    name: str
    memory_bytes: int = 0
    share: float | None = None  # of compute, guaranteed; None: 1/D of whichever device it gets
    times: Times = field(default_factory=Times)
    times_by_kind: dict[str, Times] = field(default_factory=dict)
    weight: float = 1  # among its tenant's own functions
    host_bytes: int = 0  # that a sandbox of it claims of the host, wherever it runs
    instances: int | None = None  # sandboxes of it at once, at the most; None: as many as there is room for
    share_limit: float | None = None  # how much it may borrow up to, where sharing is elastic; None: all
    datasets: tuple[str, ...] = ()  # whose files it reads

    def runs_on(self, device: DeviceSpec) -> bool:
        """Whether the function can use this kind of device at all, whatever its size."""
        if device.kind == CPU:
            return self.share == 0 or CPU in self.times_by_kind
        return self.share != 0

    @property
    def device_count(self) -> int:
        """How many devices a sandbox of it is on."""
        return 1 if self.share is None or self.share <= 1 else int(self.share)

    def share_on(self, device: DeviceSpec) -> float:
        """Of that device alone."""
        share = self.share
        if not share:
            return 1 / device.concurrency
        return share if share <= 1 else 1.0

    def times_on(self, device: DeviceSpec) -> Times:
        """Declared times on this device: its kind's own, else the general ones scaled by its speed."""
        times = self.times_by_kind.get(device.kind)
        if times is None:
            times = self.times
            if times.run_s is not None and device.speed != 1:
                times = Times(times.run_s / device.speed, times.cold_s, times.load_s)
        if times.load_s is None:
            bandwidth = device.bandwidth_bytes_s
            times = Times(times.run_s, times.cold_s, self.memory_bytes / bandwidth if bandwidth else 0)
        return times
