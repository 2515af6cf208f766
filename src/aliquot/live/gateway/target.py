"""The target of an invocation: the action that a path resolves to, prepared once for many calls."""

from aliquot.live.catalogue.resolving import Reached
from aliquot.live.invocations.metrics import Tally
from aliquot.live.invocations.parameters import ParameterMerger


class Target:
    """A resolved action with its counters and the merger of its parameters."""

    __slots__ = ("parameters", "reached", "sdk", "tally")

    def __init__(self, reached: Reached, tally: Tally) -> None:
        self.reached = reached
        self.tally = tally
        self.sdk = reached.action.annotation("sdk") is True and not reached.composite  # takes pickled arguments
        self.parameters = ParameterMerger(reached)
