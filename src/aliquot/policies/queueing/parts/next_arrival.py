"""When a flow's next call is to be expected: the interface that forecasts will fill, and a simple estimator."""

from typing import NamedTuple, Protocol

from aliquot.core.view import FlowView


class Expected(NamedTuple):
    """The next arrival, give or take `spread_s`."""

    at: float
    spread_s: float


class NextArrival(Protocol):
    def predict(self, flow: FlowView, *, now: float) -> Expected | None:
        """None when there is nothing to go by, or nothing certain enough. No side effects."""
        ...


class RecentGaps:
    """The last arrival plus the recent mean gap, trusted where the gaps deviate little from it."""

    def __init__(self, trust: float = 0.5) -> None:
        self._trust = trust  # largest deviation, as a part of the mean

    def predict(self, flow: FlowView, *, now: float) -> Expected | None:
        gap_s, spread_s = flow.recent_interarrival_s, flow.interarrival_deviation_s
        if gap_s is None or flow.last_arrival + gap_s <= now or spread_s > self._trust * gap_s:
            return None
        return Expected(flow.last_arrival + gap_s, spread_s)
