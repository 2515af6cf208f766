"""Counts of calls over time: by second for an hour and by minute for a day, of all calls and of each namespace."""

from collections import OrderedDict
from math import floor
from typing import NamedTuple

SECOND_S, MINUTE_S = 1, 60
KEPT = {SECOND_S: 3600, MINUTE_S: 1440}  # buckets of each grain
MAX_NAMESPACES = 64
MAX_POINTS = 2000
ALL = ""
MEASURES = ("arrivals", "ended", "failed", "cold", "wait_s", "run_s", "queued", "running")
_LEVELS = ("queued", "running")  # a measure that lasts until it changes; the others are sums
_PLACE = {name: place for place, name in enumerate(MEASURES)}
_LEVEL_PLACES = tuple(_PLACE[name] for name in _LEVELS)
_WIDTH = len(MEASURES)


class Columns(NamedTuple):
    """Series as columns: the beginning of each bucket in epoch seconds, and the values of each name."""

    step: int
    times: list[int]
    values: dict[str, list[float]]


class NamespaceCounts:
    """The counts of one namespace."""

    def __init__(self) -> None:
        self.levels = dict.fromkeys(_LEVELS, 0)
        self._buckets: dict[int, OrderedDict[int, list[float]]] = {grain: OrderedDict() for grain in KEPT}

    def add(self, name: str, at: float, amount: float) -> None:
        """Add to a sum."""
        place = _PLACE[name]
        for grain, buckets in self._buckets.items():
            self._bucket(grain, buckets, at)[place] += amount

    def change(self, name: str, at: float, by: int) -> None:
        """Change a level. A bucket has the highest one."""
        place = _PLACE[name]
        level = self.levels[name] = max(0, self.levels[name] + by)
        for grain, buckets in self._buckets.items():
            bucket = self._bucket(grain, buckets, at)
            bucket[place] = max(bucket[place], level)
            bucket[place + _WIDTH] = level

    def read(self, names: list[str], times: list[int], grain: int) -> dict[str, list[float]]:
        """Return the values of the buckets that begin at these times."""
        buckets = self._buckets[grain]
        held = self._levels_before(buckets, times[0]) if times else {}
        found: dict[str, list[float]] = {name: [] for name in names}
        for time in times:
            bucket = buckets.get(time)
            for name in names:
                value = bucket[_PLACE[name]] if bucket is not None else held.get(name, 0.0)
                found[name].append(round(value, 6))
            if bucket is not None:
                held = _last_levels(bucket)
        return found

    def _bucket(self, grain: int, buckets: OrderedDict[int, list[float]], at: float) -> list[float]:
        begin = floor(at) // grain * grain
        bucket = buckets.get(begin)
        if bucket is None:
            # After the measures come the levels at the end of the bucket, in the same order.
            bucket = buckets[begin] = [0.0] * (2 * _WIDTH)
            for place, name in zip(_LEVEL_PLACES, _LEVELS, strict=True):
                bucket[place] = bucket[place + _WIDTH] = self.levels[name]
            while len(buckets) > KEPT[grain]:
                buckets.popitem(last=False)
        return bucket

    @staticmethod
    def _levels_before(buckets: OrderedDict[int, list[float]], begin: int) -> dict[str, float]:
        for time in reversed(buckets):
            if time < begin:
                return _last_levels(buckets[time])
        return {}


class SeriesTable:
    """The counts of all calls, and of the namespaces that had calls last."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, NamespaceCounts] = OrderedDict({ALL: NamespaceCounts()})

    def add(self, tenant: str, name: str, at: float, amount: float = 1.0) -> None:
        self._counts[ALL].add(name, at, amount)
        self._of(tenant).add(name, at, amount)

    def change(self, tenant: str, name: str, at: float, by: int) -> None:
        self._counts[ALL].change(name, at, by)
        self._of(tenant).change(name, at, by)

    def restart(self, at: float) -> None:
        """Set all levels to 0, because the server was down and has begun anew."""
        for counts in self._counts.values():
            for name, level in counts.levels.items():
                if level:
                    counts.change(name, at, -level)

    def read(self, tenant: str, names: list[str], begin: int, end: int, grain: int) -> Columns:
        """Return columns of at most `MAX_POINTS` buckets from `begin` to `end`, in epoch seconds."""
        end = floor(end) // grain * grain
        begin = max(floor(begin) // grain * grain, end - (min(MAX_POINTS, KEPT[grain]) - 1) * grain)
        times = list(range(begin, end + 1, grain))
        counts = self._counts.get(tenant)
        values = NamespaceCounts().read(names, times, grain) if counts is None else counts.read(names, times, grain)
        return Columns(grain, times, values)

    @property
    def namespaces(self) -> list[str]:
        return sorted(tenant for tenant in self._counts if tenant != ALL)

    def _of(self, tenant: str) -> NamespaceCounts:
        counts = self._counts.get(tenant)
        if counts is None:
            counts = self._counts[tenant] = NamespaceCounts()
            if len(self._counts) > MAX_NAMESPACES + 1:
                oldest = next(name for name in self._counts if name != ALL)
                del self._counts[oldest]
        return counts


def _last_levels(bucket: list[float]) -> dict[str, float]:
    return {name: bucket[place + _WIDTH] for place, name in zip(_LEVEL_PLACES, _LEVELS, strict=True)}
