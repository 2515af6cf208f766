"""Tells how many devices of each kind the demand that is foreseen takes, for whatever scales the cluster.

Each forecast says of a function how likely a call is, and how many will run at once. The functions are independent, so
the means and the variances of what they need add up. 95 % of the time no more is needed than the mean and 1.645
standard deviations. What needs more devices counts: the compute or the memory.
"""

from collections.abc import Sequence
from math import ceil, sqrt

from aliquot.core.commands import Command, WantDevices
from aliquot.core.device_index import DeviceClass
from aliquot.core.events import DemandRow
from aliquot.core.flow import Flow
from aliquot.core.model import CPU
from aliquot.core.registry import Registry

NORMAL_95 = 1.645  # standard deviations below which 95 % of a normal distribution lie
BAND_DEVIATIONS = 2 * NORMAL_95  # between the quantiles of 5 and 95 %
FORECAST, PLAN = "forecast", "plan"  # what a need is counted from
TOLERANCE = 1e-6  # of a device, against errors of rounding


class KindNeed:
    """The need of one kind of device that is foreseen, in devices."""

    def __init__(self) -> None:
        self.mean = self.variance = 0.0  # of compute
        self.memory = self.memory_variance = 0.0
        self.flows = 0

    def add(self, flow: Flow, own: DeviceClass, row: DemandRow) -> None:
        """Add the demand of a flow on devices of a class."""
        spec = flow.spec
        compute = 1 / own.spec.concurrency if spec.share is None else spec.share
        memory = 0.0 if not own.spec.memory_bytes else spec.memory_bytes * spec.device_count / own.spec.memory_bytes
        now = flow.in_flight + flow.queued
        middle, deviation = max(row.middle, now), (row.high - row.low) / BAND_DEVIATIONS
        mean = max(row.chance * middle, now)
        variance = max(0.0, row.chance * (middle**2 + deviation**2) - (row.chance * middle) ** 2)
        self.mean += mean * compute
        self.variance += variance * compute**2
        self.memory += mean * memory
        self.memory_variance += variance * memory**2
        self.flows += 1

    def devices(self, deviations: float) -> int:
        """Return the devices that are needed at most, so many standard deviations above the mean."""
        compute = self.mean + deviations * sqrt(self.variance)
        memory = self.memory + deviations * sqrt(self.memory_variance)
        return ceil(max(compute, memory) - TOLERANCE)


class CapacityWanted:
    """The devices of each kind that are wanted, as last told."""

    def __init__(self, registry: Registry, outbox: list[Command]) -> None:
        self.wanted: dict[str, WantDevices] = {}
        self.middle: dict[str, int] = {}  # devices that are needed half of the time
        self._registry = registry
        self._outbox = outbox
        self._needs: dict[str, dict[str, WantDevices]] = {}  # by kind, then by what they were counted from

    def update(self, demand: Sequence[tuple[Flow, DemandRow]]) -> None:
        """Tell how many devices of a kind are wanted, where that has changed."""
        needs: dict[str, KindNeed] = {}
        by_s = 0.0
        for flow, row in demand:
            own = _class_of(flow)
            if own is not None:
                needs.setdefault(own.spec.kind, KindNeed()).add(flow, own, row)
                by_s = max(by_s, row.window_s)
        for kind in [*needs, *(kind for kind in self.wanted if kind not in needs)]:
            need = needs.get(kind) or KindNeed()
            self.middle[kind] = need.devices(0)
            count = need.devices(NORMAL_95)
            self._tell(FORECAST, kind, count, by_s, f"{need.flows} functions need {count} with a chance of 95 %")

    def planned(self, kind: str, count: int, by_s: float, reason: str) -> None:
        """Take what calls with deadlines need. The larger need of these and of the forecasts is told."""
        self._tell(PLAN, kind, count, by_s, reason)

    def _tell(self, source: str, kind: str, count: int, by_s: float, reason: str) -> None:
        needs = self._needs.setdefault(kind, {})
        needs[source] = WantDevices(kind, count, by_s, reason)
        most = max(needs.values(), key=lambda need: need.count)
        before = self.wanted.get(kind)
        if (0 if before is None else before.count) == most.count:
            return
        there = sum(device.spec.kind == kind for device in self._registry.devices.values())
        self.wanted[kind] = WantDevices(kind, most.count, most.by_s, f"{most.reason}, {there} are there")
        self._outbox.append(self.wanted[kind])


def _class_of(flow: Flow) -> DeviceClass | None:
    """Return the class of devices on which a flow is, or else the first accelerators that it could be on."""
    for sandbox in flow.sandboxes.values():
        if sandbox.device.spec.kind != CPU:
            return sandbox.device.device_class
    return next((own for own in flow.classes if own.spec.kind != CPU), None)
