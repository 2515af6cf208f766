"""Bounds of run times and starts, learned for each flow. A promise needs the longest time that is likely, not the mean.

A bound is the 0.98 quantile of the last 64 times and the distance of the 0.84 quantile from the median, which is about
a standard deviation. Of fewer than 8 times it is twice the largest, or the declared time if none was longer. Before the
first run it is the declared time, and without one nothing is known.

One very long run must not refuse every later call: refused calls do not run, and nothing new would be learned. So a
bound falls half-way to the median whenever nothing ran for ten medians.
"""

from bisect import bisect_left, insort
from collections import deque
from math import ceil, log2
from typing import TYPE_CHECKING

from aliquot.core.admission.records import SavedTimes
from aliquot.core.batch_times import expected_time
from aliquot.core.model import DeviceSpec, FunctionSpec, Times

if TYPE_CHECKING:
    from aliquot.core.flow import Flow
    from aliquot.core.view import DeviceView

MAX_TIMES = 64  # that a bound is computed from
MIN_TIMES = 8  # for a quantile
ENOUGH_TIMES = 32  # of one size, where the runs of all sizes say something, too
QUANTILE = 0.98
SPREAD_QUANTILE = 0.84  # whose distance from the median is a standard deviation, if times are normal
MAX_SPREAD = 0.25  # of the quantile, that is added to it
FEW_FACTOR = 1.2  # by which the largest of a few times is exceeded, where more is known from other sizes
MEDIANS = 10  # without a run, after which a bound falls
MAX_HALVINGS = 40
MAX_COLD_REFUSALS = 3  # for want of a warm sandbox within `COLD_PERIOD_S`, before one is started
COLD_PERIOD_S = 10.0


class TimeWindow:
    """The last times of one kind, such as runs of one size on one kind of device."""

    __slots__ = ("_latest", "_sorted", "at")

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []
        self.at: float = 0  # of the last one

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def times(self) -> tuple[float, ...]:
        """Return the times in the order in which they were recorded."""
        return tuple(self._latest)

    def record(self, seconds: float, now: float) -> None:
        """Add a time, and forget the oldest of too many."""
        self.at = now
        self._latest.append(seconds)
        insort(self._sorted, seconds)
        if len(self._latest) > MAX_TIMES:
            oldest = self._latest.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]

    def bound(self, declared: float | None, now: float) -> float | None:
        """Return the longest time that is likely, or None if nothing is known."""
        times = self._sorted
        if not times:
            return declared
        if len(times) < MIN_TIMES:
            largest = times[-1]
            if declared is not None and largest <= declared:
                return declared  # nothing has shown that it is too long
            bound = 2 * largest
        else:
            bound = self._tail()
        return self._decayed(bound, now)

    def _tail(self) -> float:
        """Return the quantile and a spread. The largest of so few times is exceeded by one run in a few dozen."""
        times = self._sorted
        largest = times[ceil(QUANTILE * len(times)) - 1]
        spread = times[ceil(SPREAD_QUANTILE * len(times)) - 1] - times[len(times) // 2]
        return largest + min(spread, MAX_SPREAD * largest)

    def raised(self, expected: float, now: float) -> float:
        """Return what is expected, or a little more than the largest time if that is above it."""
        largest = self._sorted[-1]
        return expected if largest <= expected else self._decayed(FEW_FACTOR * largest, now)

    def _decayed(self, bound: float, now: float) -> float:
        """Return the bound after a time without runs."""
        median = self._sorted[len(self._sorted) // 2]
        if bound <= median:
            return bound
        periods = (now - self.at) / (MEDIANS * median) if median else 0
        if periods < 1:
            return bound
        return median + (bound - median) / 2.0 ** min(MAX_HALVINGS, int(log2(periods)) + 1)


COLD_SIZE, LOAD_SIZE = 0, -1  # keys of the windows of starts, beside the sizes of runs
RATIO_SIZE = -2  # of the window of measured against declared times, over all sizes


class Outlook:
    """The bounds of one flow, by kind of device and number of calls in a run."""

    __slots__ = ("_refused_cold", "_windows", "probe")

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], TimeWindow] = {}
        self.probe: str | None = None  # a call that runs without a promise, to learn from it
        self._refused_cold: list[float] = []  # when calls were refused because no sandbox was warm

    def refused_cold(self, now: float) -> bool:
        """Record that a call was refused for want of a warm sandbox, and return whether one should be started."""
        self._refused_cold = [at for at in self._refused_cold if at > now - COLD_PERIOD_S]
        self._refused_cold.append(now)
        if len(self._refused_cold) < MAX_COLD_REFUSALS:
            return False
        self._refused_cold.clear()
        return True

    def record_run(self, kind: str, size: int, seconds: float, *, first: bool, now: float) -> None:
        """Record a run. The first run in a sandbox counts only if there is no other."""
        window = self._windows.get((kind, size))
        if window is None:
            window = self._windows[kind, size] = TimeWindow()
        elif first and len(window):
            return
        window.record(seconds, now)

    def record_ratio(self, kind: str, ratio: float, now: float) -> None:
        """Record how much longer a run of any size took than was declared for its size."""
        window = self._windows.get((kind, RATIO_SIZE))
        if window is None:
            window = self._windows[kind, RATIO_SIZE] = TimeWindow()
        window.record(ratio, now)

    def record_start(self, kind: str, seconds: float, *, cold: bool, now: float) -> None:
        """Record the time until a sandbox was started, or its bytes were loaded again."""
        key = kind, COLD_SIZE if cold else LOAD_SIZE
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = TimeWindow()
        window.record(seconds, now)

    def run_s(self, spec: FunctionSpec, device: DeviceSpec, size: int, now: float) -> float | None:
        """Return the bound of a run with so many calls, or None if nothing is known.

        Where times of batches are declared, all runs together tell how much longer than that a run may take. A few
        times of one size say less, so they only raise this.
        """
        window = self._windows.get((device.kind, size))
        times = spec.times_on(device)
        declared = times.batch_run_s(size)
        if times.batch_s and declared is not None:
            if window is not None and len(window) >= ENOUGH_TIMES:
                return window.bound(None, now)
            expected = declared * self._ratio(device.kind, size, now)
            return expected if window is None else window.raised(expected, now)
        if window is not None:
            return window.bound(declared, now)
        return declared if size == 1 else self._unseen(times, device.kind, size, now)

    def _ratio(self, kind: str, size: int, now: float) -> float:
        """Return how much longer than declared a run may take."""
        window = self._windows.get((kind, RATIO_SIZE))
        if window is None or len(window) < MIN_TIMES:
            few = 1.0 if size == 1 else FEW_FACTOR
            return few if window is None else window.raised(few, now)
        return window.bound(None, now) or 1.0

    def start_s(self, spec: FunctionSpec, device: DeviceSpec, now: float, *, cold: bool) -> float:
        """Return the bound of a start, or of a swap-in."""
        times = spec.times_on(device)
        load_s = times.load_s or 0.0
        declared = max(times.cold_s, load_s) if cold else load_s
        window = self._windows.get((device.kind, COLD_SIZE if cold else LOAD_SIZE))
        bound = None if window is None else window.bound(declared, now)
        return declared if bound is None else bound

    def runs(self, kind: str) -> int:
        """Return the number of runs of single calls that the bound on this kind comes from."""
        window = self._windows.get((kind, 1))
        return 0 if window is None else len(window)

    def _unseen(self, times: Times, kind: str, size: int, now: float) -> float | None:
        """Return the bound of a size that was not seen, interpolated between the sizes that were."""
        known = {
            seen: bound
            for (of_kind, seen), window in self._windows.items()
            if of_kind == kind and seen > 0 and (bound := window.bound(None, now)) is not None
        }
        return expected_time(known, size) if known else times.batch_run_s(size)

    def saved(self) -> tuple[SavedTimes, ...]:
        """Return all times, for a store."""
        return tuple(SavedTimes(kind, size, window.times) for (kind, size), window in self._windows.items())

    def restore(self, saved: tuple[SavedTimes, ...], now: float) -> None:
        """Take over times from before a restart, where nothing newer is known."""
        for each in saved:
            window = self._windows.setdefault((each.kind, each.size), TimeWindow())
            if not len(window):
                for seconds in each.seconds[-MAX_TIMES:]:
                    window.record(seconds, now)


def plain_bound(
    flow: "Flow", device: "DeviceView", now: float, size: int | None = None, *, started: bool = False
) -> float | None:
    """Return how long a plain run of so many calls, or of those that wait, may hold its slot, or None if unknown.

    The start is included, unless it has started or a sandbox is resident.
    """
    spec, outlook, on = flow.spec, flow.outlook, device.spec
    size = max(1, min(spec.batch, flow.queued)) if size is None else size
    run_s = spec.times_on(on).batch_run_s(size) if outlook is None else outlook.run_s(spec, on, size, now)
    if run_s is None:
        known = flow.run_estimates_s.get(on.kind)
        if known is None:
            return None
        run_s = 2 * known
    if started or flow.resident_on(device):
        return run_s
    if outlook is not None:
        return run_s + outlook.start_s(spec, on, now, cold=True)
    times = spec.times_on(on)
    return run_s + max(times.cold_s, times.load_s or 0, flow.start_estimate_s or 0)


def outlook_of(flow: "Flow", now: float) -> Outlook:
    """Return the bounds of a flow. The first time it takes over what the flow has learned without objectives."""
    found = flow.outlook
    if found is None:
        found = flow.outlook = Outlook()
        declared = {own.spec.kind: flow.spec.times_on(own.spec).run_s for own in flow.classes}
        for kind, run_s in flow.run_estimates_s.items():
            if declared.get(kind) is None:
                found.record_run(kind, 1, run_s, first=False, now=now)
        if flow.start_estimate_s is not None:
            for kind in declared:
                found.record_start(kind, flow.start_estimate_s, cold=True, now=now)
    return found
