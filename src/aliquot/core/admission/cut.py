"""The frontier of a network that is no single arc: labels over the open cut.

The arcs are passed in an order in which a moment's arcs leave it after all have reached it. A cut label has the times
of the moments that are open, that is reached and not left by all arcs, and the cost so far. A label is dropped if
another one costs no more and is nowhere later. This is exact until `MAX_LABELS` labels have been made. From then on,
labels are compared by cost and by the end of the whole graph, once with the fastest and once with the cheapest choices
for all that follows. The cheapest label within each step of 0.1 % stays.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from aliquot.core.admission.network import BEGIN, END, Arc
from aliquot.core.admission.pareto import MAX_LABELS, ROUNDING, Label, ParetoFrontier, frontier_of

MAX_COMPARED = 16  # cheaper labels that each label is compared with
MAX_ROUNDED = 200  # labels that stay by each of the two comparisons


class CutLabel(NamedTuple):
    """The cost of the arcs passed, the times of the open moments, and the labels of the arcs."""

    cost: float
    times: tuple[float, ...]
    label: Label  # its latency and cost have no meaning


def frontier_of_network(arcs: Sequence[Arc]) -> ParetoFrontier:
    """Return the frontier of a network, as exactly as its size allows."""
    passed = _in_order(arcs)
    tails = [_tails(passed, fastest) for fastest in (True, False)]
    open_moments: list[int] = [BEGIN]
    labels = [CutLabel(0, (0.0,), Label(0, 0))]
    made = 0
    for place, arc in enumerate(passed):
        labels = _extended(labels, arc, open_moments)
        made += len(labels)
        if arc.target not in open_moments:
            open_moments.append(arc.target)
        if all(other.source != arc.source for other in passed[place + 1 :]):
            closed = open_moments.index(arc.source)
            open_moments.pop(closed)
            labels = [each._replace(times=each.times[:closed] + each.times[closed + 1 :]) for each in labels]
        labels.sort(key=_by_cost)
        if made > MAX_LABELS:
            labels = _rounded(labels, [[tail[moment] for moment in open_moments] for tail in tails])
        else:
            labels = _undominated(labels)
    ended = frontier_of(each.label._replace(latency_s=each.times[0], cost=each.cost) for each in labels)
    return ended._replace(exact=made <= MAX_LABELS and all(arc.frontier.exact for arc in arcs))


def _in_order(arcs: Sequence[Arc]) -> list[Arc]:
    """Return the arcs so that all that reach a moment come before those that leave it, with few moments open."""
    left = list(arcs)
    ordered: list[Arc] = []
    while left:
        ready = [arc.source for arc in left if all(other.target != arc.source for other in left)]
        moment = min(dict.fromkeys(ready), key=_new_moments(left, ordered))
        ordered += [arc for arc in left if arc.source == moment]
        left = [arc for arc in left if arc.source != moment]
    return ordered


def _new_moments(left: Sequence[Arc], passed: Sequence[Arc]) -> Callable[[int], int]:
    reached = dict.fromkeys(arc.target for arc in passed)
    return lambda moment: sum(arc.source == moment and arc.target not in reached for arc in left)


def _tails(ordered: Sequence[Arc], fastest: bool) -> dict[int, float]:
    """Return the time from each moment to the end, with the fastest or with the cheapest choice of each arc."""
    tails = {END: 0.0}
    for arc in reversed(ordered):
        choice = arc.frontier.labels[0 if fastest else -1]
        tails[arc.source] = max(tails.get(arc.source, 0.0), choice.latency_s + tails[arc.target])
    return tails


def _extended(labels: Iterable[CutLabel], arc: Arc, open_moments: list[int]) -> list[CutLabel]:
    source = open_moments.index(arc.source)
    target = open_moments.index(arc.target) if arc.target in open_moments else None
    made = []
    for cost, times, label in labels:
        for choice in arc.frontier.labels:
            end_s = times[source] + choice.latency_s
            if target is None:
                longer = (*times, end_s)
            else:
                longer = (*times[:target], max(times[target], end_s), *times[target + 1 :])
            made.append(CutLabel(cost + choice.cost, longer, Label(0, 0, label, choice)))
    return made


def _by_cost(label: CutLabel) -> tuple[float, tuple[float, ...]]:
    return label[:2]


def _undominated(labels: Iterable[CutLabel]) -> list[CutLabel]:
    """Drop labels for which a cheaper one is nowhere later. Only some are compared, which drops fewer but no others."""
    kept: list[CutLabel] = []
    for label in labels:
        if not any(_nowhere_later(other.times, label.times) for other in kept[-MAX_COMPARED:]):
            kept.append(label)
    return kept


def _nowhere_later(times: tuple[float, ...], others: tuple[float, ...]) -> bool:
    return all(mine <= other for mine, other in zip(times, others, strict=True))


def _rounded(labels: list[CutLabel], tails: Iterable[Sequence[float]]) -> list[CutLabel]:
    """Keep the cheapest labels by the end of the graph, of labels that are sorted by cost."""
    kept: dict[int, None] = {}
    for tail in tails:
        ends_s = [max(map(float.__add__, label.times, tail)) for label in labels]
        kept |= dict.fromkeys(_cheapest_by_step(ends_s))
    return [labels[number] for number in sorted(kept)]


def _cheapest_by_step(ends_s: list[float]) -> list[int]:
    """Return the places of the earliest end, and of the first end within each step of time."""
    earliest_s = min(ends_s)
    step_s = ROUNDING * earliest_s or 1.0
    while True:
        first: dict[int, int] = {}
        for number, end_s in enumerate(ends_s):
            first.setdefault(int((end_s - earliest_s) / step_s), number)
        if len(first) <= MAX_ROUNDED:
            return [ends_s.index(earliest_s), *first.values()]
        step_s *= 2
