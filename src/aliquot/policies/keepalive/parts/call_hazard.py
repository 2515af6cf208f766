"""The chance that a flow is called in its next step, learned from all flows while they are called.

Time is divided into steps, of a minute by default. The chance of a call in a step, given the past, is a *hazard*. It is
estimated by a logistic regression whose features are all categories: the steps since the last call, the flow's own idle
times of that length beside those that lasted longer, the last gaps, calls in the last 5 to 240 steps, and calls at the
same phase of several periods. A category has one weight, which all flows share. Each step of each flow is first
predicted and then learned from, with AdaGrad's rates. So a new flow begins with the experience of all others.

The regression is a sum of 26 table look-ups. It needs no library and no training, and gives equal results when equal
calls are replayed.
"""

from math import exp, floor, log2, sqrt

MAX_GAP = 511  # steps; longer gaps count as this one
HISTORY = (1 << MAX_GAP) - 1
BIAS = -3.0  # log odds before anything is learned
RATE = 0.05
FIRST_SQUARES = 0.01  # initial sum of squared gradients, which bounds the first steps
PERIODS = (2, 3, 4, 5, 6, 10, 15, 20, 30, 60)
LONG_PERIODS = (30, 60, 120, 180, 240)
_AGE_EDGES = (*range(13), 14, 16, 19, 22, 25, 28, 29, 30, 31, 32, 40, 50, 58, 59, 60, 61, 62, 75, 90, 119, 120, 121,
              150, 180, 240, 300, 480)  # fmt: skip
_LAST_5, _LAST_15, _LAST_60, _LAST_240 = ((1 << steps) - 1 for steps in (5, 15, 60, 240))
_SIZES = (60, 120, 100, 980, 240, 400, 120, 320, 400, 400, 2400, *(160,) * len(PERIODS), *(160,) * len(LONG_PERIODS))
_MAX_COUNT = 1023


def _levels(steps_per_doubling: float, most: int, plus: int = 0) -> list[int]:
    return [
        min(most, floor(steps_per_doubling * log2(max(1, count + plus)) + (0.5 if plus else 0)))
        for count in range(_MAX_COUNT + 1)
    ]


_AGE = [sum(edge <= age for edge in _AGE_EDGES) - 1 for age in range(MAX_GAP + 1)]
_LOG = _levels(2, 19)
_HITS, _NEAR, _AT_RISK = _levels(4, 9, 1), _levels(2, 11, 1), _levels(2, 9, 1)


class CallHistory:
    """The calls of one flow by step, and the prediction for the current step."""

    __slots__ = (
        "at_risk",
        "called",
        "chance",
        "features",
        "gap",
        "gaps",
        "gaps_total",
        "last",
        "older_gap",
        "oldest_gap",
        "past",
        "step",
    )  # fmt: skip

    def __init__(self, step: int) -> None:
        self.step = step  # the current one
        self.called = False  # in the current step
        self.past = 0  # a bit for each earlier step, the previous one lowest
        self.last = -1  # step of the last call before the current step
        self.gap = self.older_gap = self.oldest_gap = 0
        self.gaps: dict[int, int] = {}  # how often a gap had this length
        self.gaps_total = 0
        self.at_risk = 0  # gaps at least as long as the current one is now
        self.features: list[int] = []  # indices of weights; empty until the flow was called
        self.chance = 0.0  # of a call in the current step, as of its begin


class CallHazard:
    """The weights of all categories, which are learned from the steps of all flows."""

    def __init__(self) -> None:
        self._weights = [0.0] * sum(_SIZES)
        self._squares = [FIRST_SQUARES] * len(self._weights)
        self.learned = 0  # steps

    def advance(self, history: CallHistory, step: int, max_steps: int) -> None:
        """Learn from the steps before `step`, and predict it. Of a longer absence only so many steps are learned."""
        for _ in range(min(step - history.step, max_steps)):
            self._close(history)
            history.step += 1
            self._open(history)
        skipped = step - history.step
        if skipped > 0:
            self._close(history)
            history.past = history.past << (skipped - 1) & HISTORY
            history.step = step
            age = min(step - history.last, MAX_GAP)
            history.at_risk = sum(count for gap, count in history.gaps.items() if gap >= age - 1)
            self._open(history)

    def _close(self, history: CallHistory) -> None:
        """End the current step: learn whether it had a call, and add it to the past."""
        called = history.called
        if history.features:
            self._learn(history.features, history.chance - called)
        history.past = (history.past << 1 | called) & HISTORY
        history.called = False
        if not called:
            return
        if history.last >= 0:
            gap = min(history.step - history.last, MAX_GAP)
            history.gaps[gap] = history.gaps.get(gap, 0) + 1
            history.gaps_total += 1
            history.gap, history.older_gap, history.oldest_gap = gap, history.gap, history.older_gap
        history.last = history.step
        history.at_risk = history.gaps_total

    def _learn(self, features: list[int], error: float) -> None:
        weights, squares, square = self._weights, self._squares, error * error
        self.learned += 1
        for index in features:
            total = squares[index] = squares[index] + square
            weights[index] -= RATE * error / sqrt(total)

    def _open(self, history: CallHistory) -> None:
        """Predict the current step."""
        if history.last < 0:
            return
        age = min(history.step - history.last, MAX_GAP)
        if age > 1:
            history.at_risk -= history.gaps.get(age - 1, 0)
        history.features = _features(history, age)
        history.chance = self._chance(history.features)

    def _chance(self, features: list[int]) -> float:
        weights, odds = self._weights, BIAS
        for index in features:
            odds += weights[index]
        return 1 / (1 + exp(-max(-15.0, min(15.0, odds))))

    def later(self, history: CallHistory, steps: int) -> float:
        """Return the chance of a call so many steps after the current one, if no further call comes before."""
        if history.last < 0 and not history.called:
            return 0.0
        then = CallHistory(history.step + steps)
        then.past = (history.past << 1 | history.called) << (steps - 1) & HISTORY
        then.gap, then.older_gap, then.oldest_gap = history.gap, history.older_gap, history.oldest_gap
        then.gaps, last = history.gaps, history.last
        if history.called:
            if last >= 0:
                gap = min(history.step - last, MAX_GAP)
                then.gap, then.older_gap, then.oldest_gap = gap, history.gap, history.older_gap
            last = history.step
        age = min(then.step - last, MAX_GAP)
        then.at_risk = sum(count for gap, count in then.gaps.items() if gap >= age)
        return self._chance(_features(then, age))


def _features(history: CallHistory, age: int) -> list[int]:
    """Return the index of the weight of each of the flow's categories."""
    past, gaps = history.past, history.gaps
    last_5, last_15 = (past & _LAST_5).bit_count(), (past & _LAST_15).bit_count()
    last_60, last_240 = (past & _LAST_60).bit_count(), (past & _LAST_240).bit_count()
    hits = gaps.get(age, 0)
    near = 2 * hits + gaps.get(age - 1, 0) + gaps.get(age + 1, 0)
    risk = _AT_RISK[min(history.at_risk, _MAX_COUNT)]
    level, level_60, level_240 = _LOG[age], _LOG[last_60 + 1], _LOG[last_240 + 1]
    level_gap = _LOG[history.gap]
    beyond = max(-3, min(3, age - history.gap))
    beyond_older = max(-3, min(3, age - history.older_gap)) + 3
    beyond_oldest = max(-1, min(1, age - history.oldest_gap)) + 1
    codes = [
        _AGE[age],
        _NEAR[min(near, _MAX_COUNT)] * 10 + risk,
        _HITS[min(hits, _MAX_COUNT)] * 10 + risk,
        ((beyond + 3) * 7 + beyond_older) * 20 + level_gap,
        ((max(-2, min(2, beyond)) + 2) * 3 + beyond_oldest) * 16 + min(last_60, 15),
        level_gap * 20 + level,
        last_5 * 20 + level,
        last_15 * 20 + level,
        level_60 * 20 + level,
        level_240 * 20 + level,
        (level_240 * 20 + level_60) * 6 + last_5,
    ]
    busy = min(level_60, 9)
    for period in PERIODS:
        hit = past >> (period - 1) & 1 | past >> (2 * period - 2) & 2 | past >> (3 * period - 3) & 4
        codes.append((hit | past >> (4 * period - 4) & 8) * 10 + busy)
    codes += [(past >> (period - 2) & 7) * 20 + level_240 for period in LONG_PERIODS]
    return [first + code for first, code in zip(_OFFSETS, codes, strict=True)]


_OFFSETS = [sum(_SIZES[:number]) for number in range(len(_SIZES))]
