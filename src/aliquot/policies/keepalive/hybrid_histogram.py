"""The hybrid histogram of Azure Functions: free an idle flow's memory, and load it again just in time.

Idle times are counted in bins of one minute over four hours. When a flow becomes idle its memory is freed. It is loaded
again shortly before the 5th percentile of its idle times (times 0.9), and its sandboxes are stopped after the 99th
(times 1.1). If a flow has not been idle often enough, or most of its idle times are beyond the histogram, sandboxes are
stopped after the whole range, which is the fixed fallback of the original.
"""

from collections.abc import Sequence

from aliquot.core.clock import after
from aliquot.core.interfaces import Expiry, ExpiryAction, KeepAlive, Params
from aliquot.core.view import FlowView


class HybridHistogramParams(Params, frozen=True):
    bin_s: float = 60
    bins: int = 240
    head: float = 0.05  # percentile before which no call is expected
    tail: float = 0.99  # percentile after which no call is expected any more
    head_margin: float = 0.9
    tail_margin: float = 1.1
    enough: int = 5  # minimum number of idle times in the histogram


class IdleTimeHistogram:
    """The idle times of one flow."""

    __slots__ = ("beyond", "counts", "idle_since", "total")

    def __init__(self, bins: int) -> None:
        self.counts = [0] * bins
        self.total = self.beyond = 0
        self.idle_since: float | None = None

    def count(self, idle_s: float, bin_s: float) -> None:
        bin_ = int(idle_s / bin_s)
        if bin_ < len(self.counts):
            self.counts[bin_] += 1
            self.total += 1
        else:
            self.beyond += 1

    def percentile(self, part: float) -> int:
        """Return the bin up to which that fraction of the idle times lies."""
        return _bin(self.counts, part * self.total)


def _bin(counts: Sequence[int], rank: float) -> int:
    seen = 0
    for bin_, count in enumerate(counts):
        seen += count
        if seen >= rank and seen:
            return bin_
    return len(counts) - 1


class HybridHistogram(KeepAlive):
    params_type = HybridHistogramParams

    def __init__(self, params: HybridHistogramParams) -> None:
        super().__init__(params)
        self._params = params
        self._histograms: dict[int, IdleTimeHistogram] = {}

    def flow_idled(self, flow: FlowView, *, now: float) -> Expiry | None:
        params = self._params
        histogram = self._histograms.setdefault(flow.index, IdleTimeHistogram(params.bins))
        if histogram.idle_since is not None:
            histogram.count(max(0.0, flow.last_arrival - histogram.idle_since), params.bin_s)
        histogram.idle_since = now
        if not self._is_reliable(histogram):
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

    def _is_reliable(self, histogram: IdleTimeHistogram) -> bool:
        return histogram.total >= self._params.enough and histogram.total >= histogram.beyond

    def _prewarm_s(self, histogram: IdleTimeHistogram) -> float:
        """Return when to load the memory again: the lower edge of the head's bin, which is 0 in the first bin."""
        return histogram.percentile(self._params.head) * self._params.bin_s * self._params.head_margin

    def _keep_s(self, histogram: IdleTimeHistogram) -> float:
        """Return when to stop the sandboxes: the upper edge of the tail's bin."""
        return (histogram.percentile(self._params.tail) + 1) * self._params.bin_s * self._params.tail_margin
