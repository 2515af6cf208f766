"""The hybrid histogram of Azure Functions: free an idle flow's memory, and have it ready again just in time.

Idle times are counted in bins of one minute over four hours. When a flow becomes idle its sandboxes are stopped. They
are started again shortly before the 5th percentile of its idle times (times 0.9), and stopped after the 99th (times
1.1). The histogram counts only if it is representative: the coefficient of variation of its bins is at least 2, and at
most half of the idle times are beyond it. Otherwise sandboxes stay for the whole range, the original's fixed fallback.

The original forecasts flows with most idle times beyond the histogram by ARIMA. This policy does not. With
`unload=swap` memory is swapped out and loaded instead, which suits devices with little memory and much on the host.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

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
    enough: int = 1  # minimum number of idle times in the histogram
    cv: float = 2  # minimum coefficient of variation of the bins
    unload: Literal["stop", "swap"] = "stop"  # how memory is freed until the next call is expected


class IdleTimeHistogram:
    """The idle times of one flow."""

    __slots__ = ("beyond", "counts", "idle_since", "sandboxes", "squares", "total", "unloaded")

    def __init__(self, bins: int) -> None:
        self.counts = [0] * bins
        self.total = self.beyond = self.squares = 0
        self.idle_since: float | None = None
        self.unloaded = False  # its memory was freed, and is wanted again
        self.sandboxes = 0  # that the flow had when it became idle

    def count(self, idle_s: float, bin_s: float) -> None:
        bin_ = int(idle_s / bin_s)
        if bin_ < len(self.counts):
            self.squares += 2 * self.counts[bin_] + 1
            self.counts[bin_] += 1
            self.total += 1
        else:
            self.beyond += 1

    def variation(self) -> float:
        """Return the coefficient of variation of the bins' counts, or 0 if they are empty."""
        if not self.total:
            return 0.0
        mean = self.total / len(self.counts)
        return sqrt(max(0.0, self.squares / len(self.counts) - mean * mean)) / mean

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
        histogram.idle_since, histogram.unloaded, histogram.sandboxes = now, False, len(flow.sandboxes)
        if not self._is_reliable(histogram):
            return Expiry(after(now, params.bins * params.bin_s), ExpiryAction.STOP)
        if self._prewarm_s(histogram) > 0:
            histogram.unloaded = True
            return Expiry(now, ExpiryAction.STOP if params.unload == "stop" else ExpiryAction.SWAP_OUT)
        return Expiry(after(now, self._keep_s(histogram)), ExpiryAction.STOP)

    def flow_expired(self, flow: FlowView, done: Expiry, *, now: float) -> Expiry | None:
        histogram = self._histograms[flow.index]
        idle_since = now if histogram.idle_since is None else histogram.idle_since
        if histogram.unloaded:
            histogram.unloaded = False
            at = max(now, after(idle_since, self._prewarm_s(histogram)))
            if self._params.unload == "swap":
                return Expiry(at, ExpiryAction.LOAD)
            return Expiry(at, ExpiryAction.START, histogram.sandboxes, "its next call is expected soon")
        if done.action in {ExpiryAction.LOAD, ExpiryAction.START}:
            return Expiry(max(now, after(idle_since, self._keep_s(histogram))), ExpiryAction.STOP)
        return None

    def flow_closed(self, flow: FlowView) -> None:
        self._histograms.pop(flow.index, None)

    def _is_reliable(self, histogram: IdleTimeHistogram) -> bool:
        params = self._params
        enough = histogram.total >= max(1, params.enough) and histogram.total >= histogram.beyond
        return enough and histogram.variation() >= params.cv

    def _prewarm_s(self, histogram: IdleTimeHistogram) -> float:
        """Return when the memory is wanted again: the lower edge of the head's bin, which is 0 in the first bin."""
        return histogram.percentile(self._params.head) * self._params.bin_s * self._params.head_margin

    def _keep_s(self, histogram: IdleTimeHistogram) -> float:
        """Return when to stop the sandboxes: the upper edge of the tail's bin."""
        return (histogram.percentile(self._params.tail) + 1) * self._params.bin_s * self._params.tail_margin
