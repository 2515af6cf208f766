"""Choose the calls whose spans are sent, when it is known how they ended.

Chosen are all calls that failed, that had a cold start, that took longer than 99 of 100 calls of their function, and
whose caller records its trace. Of the rest a fraction is chosen by the digits of the trace's id, so that all parts of a
trace are chosen or none.

The parts of a trace end before the call that made them. A part that is not chosen by itself waits a while, because
another call of its trace may be chosen. It is forgotten when the call that began the trace has ended.
"""

from collections import Counter, OrderedDict
from math import ceil, log

from aliquot.live.history.spans.calls import EndedCall

MAX_FUNCTIONS = 10_000
MAX_WAITING_CALLS = 10_000
MAX_CHOSEN_TRACES = 10_000
WAIT_S = 60.0
_QUANTILE = 0.99
_MIN_CALLS = 100  # of a function, before its slowest are known
_MAX_COUNTED = 2000  # then all counts are halved, so that what is long ago is forgotten
_BASE = 1.02  # each class of durations ends this much above the one before
_MIN_DURATION_S = 1e-4
_TRACE_RANGE = 16**14  # the last 14 digits are random by the recommendation


class DurationQuantile:
    """The 99th percentile of the last durations of a function, exact to a fiftieth."""

    __slots__ = ("_classes", "_count", "_limit", "_until")

    def __init__(self) -> None:
        self._classes: Counter[int] = Counter()
        self._count = 0
        self._limit: int | None = None  # the class of the percentile
        self._until = _MIN_CALLS  # calls until it is found again

    def is_beyond(self, duration_s: float) -> bool:
        """Return whether a duration is above the percentile of those before it, and take it."""
        found = ceil(log(max(duration_s, _MIN_DURATION_S) / _MIN_DURATION_S, _BASE))
        beyond = self._limit is not None and found > self._limit
        self._classes[found] += 1
        self._count += 1
        self._until -= 1
        if self._until <= 0:
            self._measure()
        return beyond

    def _measure(self) -> None:
        self._until = _MIN_CALLS
        if self._count > _MAX_COUNTED:
            self._classes = Counter({found: count // 2 for found, count in self._classes.items() if count > 1})
            self._count = self._classes.total()
        above = self._count * (1 - _QUANTILE)
        for found in sorted(self._classes, reverse=True):
            above -= self._classes[found]
            if above < 0:
                self._limit = found
                return


class TailSampler:
    """Takes calls in the order in which they end, and returns those whose spans are to be sent."""

    def __init__(self, fraction: float = 0.0) -> None:
        """`fraction`: the part of the calls to choose that nothing else chooses, from 0 to 1."""
        self._fraction = fraction
        self._durations: OrderedDict[tuple[str, str], DurationQuantile] = OrderedDict()
        self._chosen: OrderedDict[str, None] = OrderedDict()  # traces that began here or elsewhere
        self._waiting: OrderedDict[str, list[EndedCall]] = OrderedDict()  # by trace, the longest wait first
        self._count = 0  # of waiting calls

    def take(self, call: EndedCall) -> list[EndedCall]:
        """Return the calls to send now that this one has ended: it, and others of its trace."""
        self._forget_old(call.ended)
        beyond = self._is_beyond(call)  # asked for every call, because it learns from all
        trace = call.trace_id
        if trace in self._chosen or call.failed or call.cold or call.sampled or beyond or self._is_in_fraction(trace):
            self._choose(trace)
            return [*self._drop(trace), call]
        if call.trace is None:
            self._drop(trace)
        else:
            self._waiting.setdefault(trace, []).append(call)
            self._count += 1
        return []

    def _is_beyond(self, call: EndedCall) -> bool:
        key = (call.namespace, call.action)
        durations = self._durations.setdefault(key, DurationQuantile())
        self._durations.move_to_end(key)
        if len(self._durations) > MAX_FUNCTIONS:
            self._durations.popitem(last=False)
        return durations.is_beyond(call.duration_s)

    def _is_in_fraction(self, trace: str) -> bool:
        return int(trace[-14:], 16) < self._fraction * _TRACE_RANGE

    def _choose(self, trace: str) -> None:
        self._chosen[trace] = None
        self._chosen.move_to_end(trace)
        if len(self._chosen) > MAX_CHOSEN_TRACES:
            self._chosen.popitem(last=False)

    def _drop(self, trace: str) -> list[EndedCall]:
        """Return the waiting calls of a trace, which wait no longer."""
        found = self._waiting.pop(trace, [])
        self._count -= len(found)
        return found

    def _forget_old(self, now_s: float) -> None:
        while self._waiting:
            trace, calls = next(iter(self._waiting.items()))
            if self._count <= MAX_WAITING_CALLS and calls[0].ended > now_s - WAIT_S:
                return
            self._drop(trace)
