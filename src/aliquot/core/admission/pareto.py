"""Pareto frontiers of latency and cost, and their composition.

A label is one way to run a part of a graph: its latency, its cost, and how it was made. A frontier is a list of labels
in order of latency, in which each costs less than all before it. One after the other, latencies and costs add up. Side
by side, the later end counts, and costs add up. Both compositions are exact: an optimal whole consists of optimal
parts. Of a list that grows too long, only the cheapest label of each step of 0.1 % of the latency is kept.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

MAX_LABELS = 50_000  # that are compared exactly
MAX_SHORTER = 200  # of them in the shorter one of two frontiers in series
ROUNDING = 0.001  # part of the latency within which only the cheapest label is kept beyond that


class Label(NamedTuple):
    """Latency and cost of one way to run a part of a graph, made of two parts, or of one stage on one kind."""

    latency_s: float
    cost: float
    first: "Label | str | None" = None  # a part, or the name of the stage
    second: "Label | str | None" = None  # the other part, or the kind of device

    def kinds(self) -> dict[str, str]:
        """Return the kind of device of each stage."""
        found: dict[str, str] = {}
        labels = [self]
        while labels:
            _, _, first, second = labels.pop()
            if isinstance(first, str) and isinstance(second, str):
                found[first] = second
            labels += [part for part in (second, first) if isinstance(part, Label)]
        return found


class ParetoFrontier(NamedTuple):
    """Labels none of which is both faster and cheaper than another one, fastest first."""

    labels: tuple[Label, ...]
    exact: bool = True  # none was left out


NOTHING = ParetoFrontier((Label(0, 0),))  # of a part that has no stages


def frontier_of(labels: Iterable[Label]) -> ParetoFrontier:
    """Return the frontier of any labels."""
    return ParetoFrontier(_efficient(labels))


def in_series(first: ParetoFrontier, second: ParetoFrontier) -> ParetoFrontier:
    """Return the frontier of two parts that run one after the other."""
    if first is NOTHING or second is NOTHING:
        return second if first is NOTHING else first
    longer, shorter = sorted((first, second), key=lambda part: len(part.labels), reverse=True)
    shorter = thinned(shorter, MAX_SHORTER)
    longer = thinned(longer, MAX_LABELS // len(shorter.labels))
    latencies_s, costs = [label[0] for label in longer.labels], [label[1] for label in longer.labels]
    sums: list[tuple[float, float, int]] = []  # plain tuples, because most are dropped again
    for added_s, added, *_ in shorter.labels:
        numbers = range(len(sums), len(sums) + len(costs))
        sums += zip([each + added_s for each in latencies_s], [each + added for each in costs], numbers, strict=True)
    sums.sort()
    kept = []
    cheapest = inf
    for latency_s, cost, number in sums:
        if cost < cheapest:
            cheapest = cost
            place, mine = divmod(number, len(costs))
            kept.append(Label(latency_s, cost, longer.labels[mine], shorter.labels[place]))
    return ParetoFrontier(tuple(kept), longer.exact and shorter.exact)


def in_parallel(first: ParetoFrontier, second: ParetoFrontier) -> ParetoFrontier:
    """Return the frontier of two parts that run side by side."""
    labels = []
    for latency_s in sorted(label.latency_s for part in (first, second) for label in part.labels):
        mine, other = (_cheapest_within(part.labels, latency_s) for part in (first, second))
        if mine is not None and other is not None:
            labels.append(Label(latency_s, mine.cost + other.cost, mine, other))
    return ParetoFrontier(_efficient(labels), first.exact and second.exact)


def thinned(frontier: ParetoFrontier, wanted: int) -> ParetoFrontier:
    """Keep the cheapest label of each step of latency, with steps so wide that at most `wanted` remain.

    The fastest label always stays.
    """
    step = 0.0
    if len(frontier.labels) <= wanted:
        return frontier
    labels = frontier.labels
    while len(labels) > wanted:
        step = 2 * step or ROUNDING
        labels = _stepwise(frontier.labels, step)
    return ParetoFrontier(labels, exact=False)


def _stepwise(labels: Sequence[Label], step: float) -> tuple[Label, ...]:
    kept = [labels[0]]
    limit = -inf
    for label in labels[1:]:
        if label.latency_s <= limit:
            kept[-1] = label
        else:
            kept.append(label)
            limit = label.latency_s * (1 + step)
    return tuple(kept)


def _efficient(labels: Iterable[Label]) -> tuple[Label, ...]:
    kept = []
    cheapest = inf
    for label in sorted(labels, key=_order):
        if label.cost < cheapest:
            cheapest = label.cost
            kept.append(label)
    return tuple(kept)


def _order(label: Label) -> tuple[float, float]:
    return label[:2]


def _cheapest_within(labels: Sequence[Label], latency_s: float) -> Label | None:
    place = bisect_right(labels, latency_s, key=_latency)
    return labels[place - 1] if place else None


def _latency(label: Label) -> float:
    return label.latency_s
