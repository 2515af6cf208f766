"""The hybrid histogram of Azure Functions: learn each flow's idle times, free its memory, bring it back just in time.

Idle times are counted in bins of one minute over four hours. When a flow falls idle its memory is freed, brought back
shortly before the 5th percentile of its idle times (times 0.9), and its sandboxes are stopped after the 99th (times
1.1). Until a flow has been idle often enough, or where most of its idle times are beyond the histogram, sandboxes are
stopped after the whole range: the fixed fallback of the original.
"""

from collections.abc import Sequence

from aliquot.core.clock import after
from aliquot.core.interfaces import Expiry, ExpiryAction, KeepAlive, Params
from aliquot.core.view import FlowView


class HybridHistogramParams(Params, frozen=True):
    bin_s: float = 60
    bins: int = 240
    head: float = 0.05  # percentile before which it is not expected
    tail: float = 0.99  # percentile after which it is not expected any more
    head_margin: float = 0.9
    tail_margin: float = 1.1
    enough: int = 5  # idle times to have seen


class Histogram:
    """One flow's idle times."""

    __slots__ = ("beyond", "counts", "idle_since", "total")

    def __init__(self, bins: int) -> None:
        self.counts = [0] * bins
        self.total = self.beyond = 0
        self.idle_since: float | None = None

    def see(self, idle_s: float, bin_s: float) -> None:
        place = int(idle_s / bin_s)
        if place < len(self.counts):
            self.counts[place] += 1
            self.total += 1
        else:
            self.beyond += 1

    def percentile(self, part: float) -> int:
        """The bin below which that part of the idle times lies."""
        return _bin(self.counts, part * self.total)


def _bin(counts: Sequence[int], rank: float) -> int:
    seen = 0
    for place, count in enumerate(counts):
        seen += count
        if seen >= rank and seen:
            return place
    return len(counts) - 1


class HybridHistogram(KeepAlive):
    params_type = HybridHistogramParams

    def __init__(self, params: HybridHistogramParams) -> None:
        super().__init__(params)
        self._params = params
        self._histograms: dict[int, Histogram] = {}

    def flow_idled(self, flow: FlowView, *, now: float) -> Expiry | None:
        params = self._params
        histogram = self._histograms.setdefault(flow.index, Histogram(params.bins))
        if histogram.idle_since is not None:
            histogram.see(max(0.0, flow.last_arrival - histogram.idle_since), params.bin_s)
        histogram.idle_since = now
        if not self._knows(histogram):
            return Expiry(after(now, params.bins * params.bin_s), ExpiryAction.STOP)
        if self._prewarm_s(histogram) > 0:
            return Expiry(now, ExpiryAction.SWAP_OUT)
        return Expiry(after(now, self._keep_s(histogram)), ExpiryAction.STOP)

    def flow_expired(self, flow: FlowView, done: Expiry, *, now: float) -> Expiry | None:
        histogram = self._histograms[flow.index]
        idle_since = now if histogram.idle_since is None else histogram.idle_since
        if done.action is ExpiryAction.SWAP_OUT:
            return Expiry(max(now, after(idle_since, self._prewarm_s(histogram))), ExpiryAction.LOAD)
        if done.action is ExpiryAction.LOAD:
            return Expiry(max(now, after(idle_since, self._keep_s(histogram))), ExpiryAction.STOP)
        return None

    def flow_closed(self, flow: FlowView) -> None:
        self._histograms.pop(flow.index, None)

    def _knows(self, histogram: Histogram) -> bool:
        return histogram.total >= self._params.enough and histogram.total >= histogram.beyond

    def _prewarm_s(self, histogram: Histogram) -> float:
        """The lower edge of the head's bin: in the first bin there is nothing to gain."""
        return histogram.percentile(self._params.head) * self._params.bin_s * self._params.head_margin

    def _keep_s(self, histogram: Histogram) -> float:
        """The upper edge of the tail's bin."""
        return (histogram.percentile(self._params.tail) + 1) * self._params.bin_s * self._params.tail_margin
