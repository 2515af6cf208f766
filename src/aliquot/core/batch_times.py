"""Run times by size of a batch, and the expected time of a size that has not run yet."""

from bisect import bisect_left
from collections.abc import Mapping

EWMA_KEEP, EWMA_NEW = 0.9, 0.1  # weights of the estimate and of a new run time


def expected_time(known: Mapping[int, float], size: int) -> float | None:
    """Return the time of a batch of this size from known times by size, or None if none is known.

    A larger batch never takes less time. Between two known sizes the time is interpolated. Beyond the largest it goes
    on as a line through the last two, or in proportion to the size if only one is known.
    """
    if not known:
        return None
    sizes = sorted(known)
    times, longest = [], 0.0
    for each in sizes:
        longest = max(longest, known[each])
        times.append(longest)
    at = bisect_left(sizes, size)
    if at < len(sizes):
        if sizes[at] == size or not at:
            return times[at]
        part = (size - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
        return times[at - 1] + part * (times[at] - times[at - 1])
    if len(sizes) == 1:
        return times[0] * size / sizes[0]
    slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
    return times[-1] + slope * (size - sizes[-1])


class BatchTimes:
    """The limit on the size of one flow's batches, and the mean run time of each size on each kind of device."""

    __slots__ = ("_by_kind", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # as declared, or less after a batch ran out of memory
        self._by_kind: dict[str, dict[int, float]] = {}

    def record(self, kind: str, size: int, run_s: float) -> None:
        own = self._by_kind.setdefault(kind, {})
        known = own.get(size)
        own[size] = run_s if known is None else EWMA_KEEP * known + EWMA_NEW * run_s

    def known(self, kind: str) -> Mapping[int, float]:
        """Return the mean run times on this kind of device by size."""
        return self._by_kind.get(kind, {})

    def ran_out_of_memory(self, size: int) -> None:
        """Allow only smaller batches from now on."""
        self.limit = max(1, min(self.limit, size - 1))
