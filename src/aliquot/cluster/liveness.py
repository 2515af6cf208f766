"""The judgement whether a node is alive, from the times at which something was heard of it.

Silence is suspicion first and loss later. A suspected node gets no new work, and what runs there goes on. A broken
connection is suspicion at once. A judge that was itself late does not judge, because what the node has sent meanwhile
may wait to be read.
"""

from enum import Enum

from msgspec import Struct


class Judgement(Enum):
    """A change in the judgement about a node."""

    SUSPECTED = "suspected"
    BACK = "back"
    LOST = "lost"


class LivenessLimits(Struct, frozen=True):
    """The times after which a silent node is suspected and lost."""

    ping_s: float = 0.5
    suspect_s: float = 2.0
    lose_s: float = 10.0


class NodeLiveness:
    """The liveness of one node."""

    def __init__(self, limits: LivenessLimits, now_s: float) -> None:
        self.suspected = False
        self._limits = limits
        self._heard_s = self._judged_s = now_s
        self._connected = True

    def heard(self, now_s: float) -> Judgement | None:
        """Note that something was heard. Return `BACK` if the node was suspected."""
        self._heard_s = now_s
        self._connected = True
        if not self.suspected:
            return None
        self.suspected = False
        return Judgement.BACK

    def disconnected(self) -> Judgement | None:
        """Note that the connection broke. Return `SUSPECTED`, unless the node was suspected already."""
        self._connected = False
        if self.suspected:
            return None
        self.suspected = True
        return Judgement.SUSPECTED

    def silent_s(self, now_s: float) -> float:
        """Return for how long nothing was heard."""
        return now_s - self._heard_s

    def judge(self, now_s: float) -> Judgement | None:
        """Judge the silence so far. This is called with every ping."""
        late_s = now_s - self._judged_s - self._limits.ping_s
        self._judged_s = now_s
        if late_s > self._limits.suspect_s / 2 and self._connected:
            return None
        silent_s = self.silent_s(now_s)
        if silent_s >= self._limits.lose_s:
            return Judgement.LOST
        if silent_s >= self._limits.suspect_s and not self.suspected:
            self.suspected = True
            return Judgement.SUSPECTED
        return None
