"""The target of an invocation: the action that a path resolves to, prepared once for many calls."""

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.metrics import ActionMetrics
from aliquot.live.invocations.parameters import ParameterMerger


class InvocationTarget:
    """A resolved action with its counters and the merger of its parameters."""

    __slots__ = ("parameters", "resolved", "sdk", "tally")

    def __init__(self, resolved: ResolvedAction, tally: ActionMetrics) -> None:
        self.resolved = resolved
        self.tally = tally
        self.sdk = resolved.action.annotation("sdk") is True and not resolved.composite  # takes pickled arguments
        self.parameters = ParameterMerger(resolved)
