"""Adaptive keep-alive, our own policy: keep an idle flow as long as its recent arrivals suggest.

The time is the recent mean gap between arrivals plus four times their mean deviation, as for TCP's retransmission
timeout. A regular flow gives its memory back soon after the next call is overdue. An irregular one gets more time than
a fixed multiple of the mean would give it.
"""

from aliquot.core.clock import after
from aliquot.core.interfaces import Expiry, ExpiryAction, KeepAlive, Params
from aliquot.core.view import FlowView


class AdaptiveParams(Params, frozen=True):
    deviations: float = 4


class Adaptive(KeepAlive):
    params_type = AdaptiveParams

    def __init__(self, params: AdaptiveParams) -> None:
        super().__init__(params)
        self._deviations = params.deviations

    def flow_idled(self, flow: FlowView, *, now: float) -> Expiry | None:
        mean_s = flow.recent_interarrival_s
        if mean_s is None:
            return None
        wait_s = mean_s + self._deviations * flow.interarrival_deviation_s
        return Expiry(max(now, after(flow.last_arrival, wait_s)), ExpiryAction.SWAP_OUT)
