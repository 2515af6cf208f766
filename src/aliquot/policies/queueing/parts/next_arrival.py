"""Predict when a flow's next call arrives: the interface for forecasts, and a simple estimator."""

from typing import NamedTuple, Protocol

from aliquot.core.view import FlowView


class ExpectedArrival(NamedTuple):
    """The expected time of the next arrival, plus or minus `spread_s`."""

    at: float
    spread_s: float


class NextArrival(Protocol):
    """The interface of a forecast of a flow's next arrival."""

    def predict(self, flow: FlowView, *, now: float) -> ExpectedArrival | None:
        """Return the next arrival, or None if it cannot be predicted well enough. No side effects."""
        ...


class RecentGaps:
    """Predicts the last arrival plus the recent mean gap, if the gaps deviate little from it."""

    def __init__(self, trust: float = 0.5) -> None:
        self._trust = trust  # maximum deviation, as a fraction of the mean

    def predict(self, flow: FlowView, *, now: float) -> ExpectedArrival | None:
        gap_s, spread_s = flow.recent_interarrival_s, flow.interarrival_deviation_s
        if gap_s is None or flow.last_arrival + gap_s <= now or spread_s > self._trust * gap_s:
            return None
        return ExpectedArrival(flow.last_arrival + gap_s, spread_s)
