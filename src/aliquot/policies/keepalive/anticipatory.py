"""Anticipatory keep-alive: swap a flow out when its next arrival takes longer than usual.

The idea is from disk scheduling, where keeping the head in place pays if the next request comes soon. The wait is alpha
times the mean time between arrivals, counted from when the flow was last serviced.
"""

from aliquot.core.clock import after
from aliquot.core.interfaces import Expiry, ExpiryAction, KeepAlive, Params
from aliquot.core.view import FlowView


class AnticipatoryParams(Params, frozen=True):
    alpha: float = 1.5


class Anticipatory(KeepAlive):
    params_type = AnticipatoryParams

    def __init__(self, params: AnticipatoryParams) -> None:
        super().__init__(params)
        self._alpha = params.alpha

    def flow_idled(self, flow: FlowView, *, now: float) -> Expiry | None:
        mean_s = flow.mean_interarrival_s
        if mean_s is None:  # there has been at most one arrival
            return None
        return Expiry(after(flow.last_serviced, self._alpha * mean_s), ExpiryAction.SWAP_OUT)
