"""Who is at work where, until when by estimate, and how much work side by side slows down: measured as it happens.

The stretch of a kind of device at k invocations at once is how much longer they run than the same functions do alone,
as a mean of logarithms, since run times vary by factors. Throughput at k is k over that stretch. More at once is not
worth having once the measurements say, beyond their own spread, that it does not raise the throughput.
"""

from collections.abc import Mapping
from math import exp, log, sqrt

from aliquot.core.view import DeviceView, FlowView, InvocationView

LEARN = 0.05
REMEMBERED = 2 / LEARN - 1  # how many measurements a moving mean amounts to
ENOUGH = 20  # runs before a stretch is believed
WORTH = log(1.02)  # by how much one more at once must raise the throughput
# A function whose own run times vary tells nothing about its neighbours, and long runs meet more of them than short.
STEADY_RUNS, STEADY = 20, 0.05  # runs alone, and largest variance of their logarithms
BEYOND = 0.2  # worse than taking turns, as a logarithm: caches and memory bandwidth
DOUBT_AFTER = 200  # runs
GUESS = 0.3  # stretch per further invocation, until it is measured


class Moving:
    """A moving mean with its spread."""

    __slots__ = ("count", "mean", "variance")

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.variance = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        learn = max(LEARN, 1 / self.count)
        off = value - self.mean
        self.mean += learn * off
        self.variance = (1 - learn) * (self.variance + learn * off * off)

    @property
    def error(self) -> float:
        """Of the mean: two standard errors."""
        return 2 * sqrt(self.variance / min(self.count, REMEMBERED)) if self.count else 0.0


class Stint:
    """One invocation at work."""

    __slots__ = ("at_once", "devices", "ends")

    def __init__(self, devices: tuple[int, ...], ends: float, at_once: int) -> None:
        self.devices = devices
        self.ends = ends
        self.at_once = at_once


class Occupancy:
    def __init__(self) -> None:
        self._stints: dict[int, dict[str, Stint]] = {}  # by device
        self._own: dict[int, dict[str, Stint]] = {}  # by flow
        self._alone: dict[tuple[int, str], Moving] = {}  # flow and kind: logarithms of run times
        self._stretch: dict[str, dict[int, Moving]] = {}  # kind: at once: logarithms of stretches
        self._known: dict[tuple[str, int], float] = {}  # the same as factors, once there are enough of them
        self._deviation_s: dict[int, float] = {}  # by flow: of run times from their estimates
        self._limits: dict[tuple[str, int], int] = {}  # by kind and D
        self.limited = False  # whether any is below D
        self.raised = 0  # how often a limit has been raised: more may be worthwhile than before
        self._doubt: dict[str, int] = {}  # kind: runs since what is known about it was doubted

    @property
    def at_work(self) -> int:
        return sum(len(own) for own in self._own.values())

    def began(self, flow: FlowView, invocation: InvocationView, device: DeviceView, ends: float) -> None:
        stint = Stint(tuple(each.index for each in invocation.devices), ends, device.running)
        for index in stint.devices:
            self._stints.setdefault(index, {})[invocation.id] = stint
        self._own.setdefault(flow.index, {})[invocation.id] = stint

    def ended(self, flow: FlowView, invocation: InvocationView, device: DeviceView) -> None:
        stint = self._stints[device.index].get(invocation.id)
        if flow.index in self._own:
            self._own[flow.index].pop(invocation.id, None)
        if stint is None:
            return
        for index in stint.devices:
            del self._stints[index][invocation.id]
        if invocation.run_s:
            self._learn(flow, device, max(stint.at_once, device.running + 1), invocation.run_s)

    def forget(self, flow: FlowView) -> list[str]:
        """The flow is gone; returns which of its invocations were at work."""
        own = self._own.pop(flow.index, {})
        for name, stint in own.items():
            for index in stint.devices:
                self._stints[index].pop(name, None)
        for kind in self._stretch:
            self._alone.pop((flow.index, kind), None)
        self._deviation_s.pop(flow.index, None)
        return list(own)

    def free_in_s(self, device: DeviceView, now: float) -> float:
        """When, by estimate, the first invocation on the device will be done."""
        return min((_left_s(stint, now) for stint in self._stints.get(device.index, {}).values()), default=0.0)

    def own_free_in_s(self, flow: FlowView, now: float) -> float | None:
        """When, by estimate, the first of the flow's own will be done; None when none is at work."""
        own = self._own.get(flow.index)
        if not own:
            return None
        return min(_left_s(stint, now) for stint in own.values()) + self._deviation_s.get(flow.index, 0.0)

    def stretch(self, device: DeviceView, at_once: int) -> float:
        """How much longer so many at once take there than one alone."""
        known = self._known.get((device.spec.kind, at_once))
        return 1 + GUESS * (at_once - 1) if known is None else known

    def worthwhile(self, device: DeviceView) -> int:
        """How many at once the device should run: up to D, unless it is known that fewer do as much."""
        key = (device.spec.kind, device.slots)
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = _limit(self._stretch.get(key[0], {}), device.slots)
            self.limited |= limit < device.slots
        return limit

    def _set_limits(self, kind: str) -> None:
        limited = False
        for key, limit in self._limits.items():
            if key[0] == kind:
                self._limits[key] = _limit(self._stretch[kind], key[1])
                self.raised += self._limits[key] > limit
            limited |= self._limits[key] < key[1]
        self.limited = limited

    def _learn(self, flow: FlowView, device: DeviceView, at_once: int, run_s: float) -> None:
        estimate_s = flow.run_estimate_s or run_s
        known_s = self._deviation_s.get(flow.index, 0.0)
        self._deviation_s[flow.index] = known_s + LEARN * (abs(run_s - estimate_s) - known_s)
        kind = device.spec.kind
        if self.worthwhile(device) < device.slots:
            self._doubt_limit(device)
        alone = self._alone.get((flow.index, kind))
        if alone is None:
            alone = self._alone[flow.index, kind] = Moving()
        if at_once == 1:
            alone.add(log(run_s))
        elif alone.count >= STEADY_RUNS and alone.variance <= STEADY:
            # At the worst they take turns: what goes beyond that is not their neighbours' doing.
            stretch = min(max(0.0, log(run_s) - alone.mean), log(at_once) + BEYOND)
            known = self._stretch.setdefault(kind, {}).setdefault(at_once, Moving())
            known.add(stretch)
            if known.count >= ENOUGH:
                self._known[kind, at_once] = exp(known.mean)
                self._set_limits(kind)

    def _doubt_limit(self, device: DeviceView) -> None:
        """Where fewer run than could, nothing more is learned about more: try it again from time to time."""
        kind, limit = device.spec.kind, self.worthwhile(device)
        self._doubt[kind] = self._doubt.get(kind, 0) + 1
        if self._doubt[kind] >= DOUBT_AFTER:
            self._doubt[kind] = 0
            self._stretch[kind].pop(limit + 1, None)
            self._known.pop((kind, limit + 1), None)
            self._set_limits(kind)


def _limit(known: Mapping[int, Moving], slots: int) -> int:
    """How many at once, by what is known of the stretch at each number."""
    below = 0.0  # logarithm of the throughput with one less
    for at_once in range(2, slots + 1):
        here = known.get(at_once)
        if here is None or here.count < ENOUGH:  # not known: nothing speaks against as many as are allowed
            return slots
        throughput = log(at_once) - here.mean
        if throughput + here.error < below + WORTH:
            return at_once - 1
        below = throughput
    return slots


def _left_s(stint: Stint, now: float) -> float:
    """What is overdue is likely to take as long again as it is overdue."""
    return abs(stint.ends - now)
