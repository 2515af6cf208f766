"""Track which invocations run on which device, when they will end, and how much they slow each other down.

The stretch of a kind of device at k invocations at once is how much longer they run than the same functions alone. It
is a mean of logarithms, since run times vary by factors. The throughput at k is k divided by the stretch. More
invocations at once are not worthwhile if the measurements show, beyond their own spread, that they do not raise the
throughput.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from math import exp, log, sqrt

from aliquot.core.view import DeviceView, FlowView, InvocationView

LEARNING_RATE = 0.05  # weight of a new value in the moving means
REMEMBERED = 2 / LEARNING_RATE - 1  # number of measurements that a moving mean amounts to
MIN_RUNS = 20  # measurements before a stretch is used
MIN_GAIN = log(1.02)  # required rise of the throughput by one more invocation, as a logarithm
# A function whose run times vary when it is alone cannot measure the effect of others.
MIN_STEADY_RUNS, MAX_STEADY_VARIANCE = 20, 0.05  # runs alone, and variance of their logarithms
MAX_EXCESS = 0.2  # over taking turns, as a logarithm, for caches and memory bandwidth
RETRY_AFTER_RUNS = 200  # then one more invocation at once is tried again
DEFAULT_STRETCH = 0.3  # per further invocation, until it is measured


class MovingMean:
    """A moving mean with its variance."""

    __slots__ = ("count", "mean", "variance")

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.variance = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        learn = max(LEARNING_RATE, 1 / self.count)
        off = value - self.mean
        self.mean += learn * off
        self.variance = (1 - learn) * (self.variance + learn * off * off)

    @property
    def error(self) -> float:
        """Return two standard errors of the mean."""
        return 2 * sqrt(self.variance / min(self.count, REMEMBERED)) if self.count else 0.0


class ActiveRun:
    """One invocation in flight, with its expected end."""

    __slots__ = ("at_once", "devices", "ends")

    def __init__(self, devices: tuple[int, ...], ends: float, at_once: int) -> None:
        self.devices = devices
        self.ends = ends
        self.at_once = at_once


class Occupancy:
    """The runs in flight, and the learned stretch of each kind of device."""

    def __init__(self) -> None:
        self._by_device: dict[int, dict[str, ActiveRun]] = {}  # by device
        # By flow, in order of the expected end. A flow may have thousands of runs in flight.
        self._by_flow: dict[int, list[tuple[float, str, ActiveRun]]] = {}
        self._alone: dict[tuple[int, str], MovingMean] = {}  # by flow and kind: logarithms of run times
        self._stretch: dict[str, dict[int, MovingMean]] = {}  # by kind and number at once: logarithms of stretches
        self._known: dict[tuple[str, int], float] = {}  # the same as factors, once there are enough measurements
        self._deviation_s: dict[int, float] = {}  # by flow: deviation of run times from their estimates
        self._limits: dict[tuple[str, int], int] = {}  # by kind and D
        self.limited = False  # whether any limit is below D
        self.raised = 0  # number of times that a limit was raised, after which more may fit
        self._runs_at_limit: dict[str, int] = {}  # by kind: runs since its limit was last tested

    @property
    def running(self) -> int:
        return sum(len(own) for own in self._by_flow.values())

    def began(self, flow: FlowView, invocation: InvocationView, device: DeviceView, ends: float) -> None:
        devices, name = invocation.devices, invocation.id
        indices = (device.index,) if len(devices) == 1 else tuple(each.index for each in devices)
        run = ActiveRun(indices, ends, device.running)
        for index in indices:
            on_device = self._by_device.get(index)
            if on_device is None:
                on_device = self._by_device[index] = {}
            on_device[name] = run
        own = self._by_flow.get(flow.index)
        if own:
            insort(own, (ends, name, run))
        else:
            self._by_flow[flow.index] = [(ends, name, run)]

    def ended(self, flow: FlowView, invocation: InvocationView, device: DeviceView) -> None:
        run = self._by_device[device.index].get(invocation.id)
        if run is None:
            return
        own = self._by_flow[flow.index]
        del own[bisect_left(own, (run.ends, invocation.id)) if len(own) > 1 else 0]
        for index in run.devices:
            del self._by_device[index][invocation.id]
        if invocation.run_s:
            self._learn(flow, device, max(run.at_once, device.running + 1), invocation.run_s)

    def moved(self, invocation: InvocationView, source: DeviceView, to: DeviceView) -> None:
        """Count a run on another device, because its sandbox has moved there."""
        run = self._by_device.get(source.index, {}).pop(invocation.id, None)
        if run is not None:
            run.devices = (to.index,)
            self._by_device.setdefault(to.index, {})[invocation.id] = run

    def forget(self, flow: FlowView) -> list[str]:
        """Forget a removed flow, and return its invocations that were in flight."""
        own = self._by_flow.pop(flow.index, [])
        for _, name, run in own:
            for index in run.devices:
                self._by_device[index].pop(name, None)
        for kind in self._stretch:
            self._alone.pop((flow.index, kind), None)
        self._deviation_s.pop(flow.index, None)
        return [name for _, name, _ in own]

    def free_in_s(self, device: DeviceView, now: float) -> float:
        """Return the estimated seconds until the first invocation on the device ends."""
        return min((_left_s(run, now) for run in self._by_device.get(device.index, {}).values()), default=0.0)

    def own_free_in_s(self, flow: FlowView, now: float) -> float | None:
        """Return the estimated seconds until the first invocation of the flow ends, or None if none is in flight."""
        own = self._by_flow.get(flow.index)
        if not own:
            return None
        overdue = bisect_left(own, (now,))
        nearest = own[max(0, overdue - 1) : overdue + 1]  # the run that is overdue least, and the next one to end
        return min(_left_s(run, now) for _, _, run in nearest) + self._deviation_s.get(flow.index, 0.0)

    def stretch(self, device: DeviceView, at_once: int) -> float:
        """Return how many times longer so many invocations at once take there than one alone."""
        known = self._known.get((device.spec.kind, at_once))
        return 1 + DEFAULT_STRETCH * (at_once - 1) if known is None else known

    def max_worthwhile(self, device: DeviceView) -> int:
        """Return how many invocations the device should run at once: D, unless fewer are known to do as much."""
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
        self._deviation_s[flow.index] = known_s + LEARNING_RATE * (abs(run_s - estimate_s) - known_s)
        kind = device.spec.kind
        if self.limited or (kind, device.slots) not in self._limits:
            self._test_limit(device)
        alone = self._alone.get((flow.index, kind))
        if alone is None:
            alone = self._alone[flow.index, kind] = MovingMean()
        if at_once == 1:
            alone.add(log(run_s))
        elif alone.count >= MIN_STEADY_RUNS and alone.variance <= MAX_STEADY_VARIANCE:
            # In the worst case they take turns. Anything much beyond that has another cause.
            stretch = min(max(0.0, log(run_s) - alone.mean), log(at_once) + MAX_EXCESS)
            known = self._stretch.setdefault(kind, {}).setdefault(at_once, MovingMean())
            known.add(stretch)
            if known.count >= MIN_RUNS:
                self._known[kind, at_once] = exp(known.mean)
                self._set_limits(kind)

    def _test_limit(self, device: DeviceView) -> None:
        """Forget the measurement above the limit from time to time, because below it nothing is learned about more."""
        kind, limit = device.spec.kind, self.max_worthwhile(device)
        if limit >= device.slots:
            return
        self._runs_at_limit[kind] = self._runs_at_limit.get(kind, 0) + 1
        if self._runs_at_limit[kind] >= RETRY_AFTER_RUNS:
            self._runs_at_limit[kind] = 0
            self._stretch[kind].pop(limit + 1, None)
            self._known.pop((kind, limit + 1), None)
            self._set_limits(kind)


def _limit(known: Mapping[int, MovingMean], slots: int) -> int:
    """Return how many at once are worthwhile, from the known stretch at each number."""
    below = 0.0  # logarithm of the throughput with one fewer
    for at_once in range(2, slots + 1):
        measured = known.get(at_once)
        if measured is None or measured.count < MIN_RUNS:  # unknown, so as many as allowed
            return slots
        throughput = log(at_once) - measured.mean
        if throughput + measured.error < below + MIN_GAIN:
            return at_once - 1
        below = throughput
    return slots


def _left_s(run: ActiveRun, now: float) -> float:
    """Return the seconds left. An overdue run is likely to take as long again as it is overdue."""
    return abs(run.ends - now)
