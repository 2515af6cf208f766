"""A graph of stages as a network of moments: each stage leads from the moment it may begin to the moment it has ended.

In a network, series and parallel parts can be found and replaced one by one: two arcs that meet at a moment without
other arcs become one, and so do two arcs between the same moments. A series-parallel graph becomes a single arc. From
any other graph a core remains, whose moments `cut.py` passes in order.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aliquot.core.admission.pareto import NOTHING, ParetoFrontier, in_parallel, in_series
from aliquot.core.errors import InputError

BEGIN, END = -1, -2


class Arc(NamedTuple):
    """A part of the graph between two moments."""

    source: int
    target: int
    frontier: ParetoFrontier


def reduced(after: Mapping[str, tuple[str, ...]], frontiers: Mapping[str, ParetoFrontier]) -> list[Arc]:
    """Return the arcs that remain when all series and parallel parts have become one arc each.

    `after` maps each stage to the stages whose ends it waits for.
    """
    ordered = in_order(after)
    arcs = _Arcs(_network(ordered, _direct(ordered, after), frontiers))
    arcs.reduce()
    return arcs.remaining()


def in_order(after: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the stages in an order in which each follows all that it waits for."""
    waits = {stage: set(before) for stage, before in after.items()}
    for stage, before in after.items():
        unknown = next((name for name in before if name not in after), None)
        if unknown is not None:
            raise InputError(f"stage '{stage}': after names '{unknown}'; it takes stages of the graph")
    ordered: list[str] = []
    followers: dict[str, list[str]] = {stage: [] for stage in after}
    for stage, before in after.items():
        for name in dict.fromkeys(before):
            followers[name].append(stage)
    ready = [stage for stage in after if not waits[stage]]
    while ready:
        stage = ready.pop(0)
        ordered.append(stage)
        for follower in followers[stage]:
            waits[follower].discard(stage)
            if not waits[follower]:
                ready.append(follower)
    if len(ordered) < len(after):
        left = ", ".join(sorted(set(after) - set(ordered)))
        raise InputError(f"stages {left} wait for each other in a circle; a graph has none")
    return ordered


def _direct(ordered: Iterable[str], after: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Return the direct predecessors of each stage, without those that another predecessor follows anyway."""
    ancestors: dict[str, frozenset[str]] = {}
    direct = {}
    for stage in ordered:
        implied = frozenset[str]().union(*(ancestors[name] for name in after[stage]))
        direct[stage] = frozenset(after[stage]) - implied
        ancestors[stage] = implied | frozenset(after[stage])
    return direct


def _network(
    ordered: list[str], direct: Mapping[str, frozenset[str]], frontiers: Mapping[str, ParetoFrontier]
) -> list[Arc]:
    """Return one arc per stage, and an empty arc from each stage's end to a begin that waits for it.

    Stages that wait for the same ones share the moment of their begin. Stages that only they wait for end there.
    """
    groups: dict[str, dict[frozenset[str], None]] = {stage: {} for stage in ordered}
    for stage in ordered:
        for name in sorted(direct[stage]):
            groups[name][direct[stage]] = None
    begins: dict[frozenset[str], int] = {frozenset(): BEGIN}
    for stage in ordered:
        begins.setdefault(direct[stage], 2 * len(begins))
    arcs = []
    for number, stage in enumerate(ordered):
        source, waited_for = begins[direct[stage]], [begins[group] for group in groups[stage]]
        if not waited_for:
            arcs.append(Arc(source, END, frontiers[stage]))
        elif len(waited_for) == 1:
            arcs.append(Arc(source, waited_for[0], frontiers[stage]))
        else:
            end = 2 * number + 1
            arcs.append(Arc(source, end, frontiers[stage]))
            arcs += [Arc(end, moment, NOTHING) for moment in waited_for]
    return arcs


class _Arcs:
    """The arcs of a network, by the moments that they leave and reach. Replacing them keeps the order of moments."""

    def __init__(self, arcs: Iterable[Arc]) -> None:
        self._arcs: dict[int, Arc] = dict(enumerate(arcs))
        self._next = len(self._arcs)
        self._leaving: dict[int, list[int]] = {}
        self._reaching: dict[int, list[int]] = {}
        for number, arc in self._arcs.items():
            self._leaving.setdefault(arc.source, []).append(number)
            self._reaching.setdefault(arc.target, []).append(number)

    def remaining(self) -> list[Arc]:
        return list(self._arcs.values())

    def reduce(self) -> None:
        """Replace series and parallel arcs until none are left."""
        moments = list(self._leaving)  # first those near the begin, so that a long series grows arc by arc
        while moments:
            moment = moments.pop(0)
            changed = self._merge_parallel(moment)
            changed += self._merge_series(moment)
            moments += [each for each in dict.fromkeys(changed) if each not in moments]

    def _merge_parallel(self, moment: int) -> list[int]:
        by_target: dict[int, list[int]] = {}
        for number in self._leaving.get(moment, ()):
            by_target.setdefault(self._arcs[number].target, []).append(number)
        changed = []
        for target, numbers in by_target.items():
            if len(numbers) > 1:
                frontier = self._arcs[numbers[0]].frontier
                for number in numbers[1:]:
                    frontier = in_parallel(frontier, self._arcs[number].frontier)
                self._replace(numbers, Arc(moment, target, frontier))
                changed += [moment, target]
        return changed

    def _merge_series(self, moment: int) -> list[int]:
        reaching, leaving = self._reaching.get(moment, ()), self._leaving.get(moment, ())
        if len(reaching) != 1 or len(leaving) != 1:
            return []
        first, second = self._arcs[reaching[0]], self._arcs[leaving[0]]
        merged = Arc(first.source, second.target, in_series(first.frontier, second.frontier))
        self._replace([reaching[0], leaving[0]], merged)
        return [first.source, second.target]

    def _replace(self, numbers: list[int], arc: Arc) -> None:
        for number in numbers:
            gone = self._arcs.pop(number)
            self._leaving[gone.source].remove(number)
            self._reaching[gone.target].remove(number)
        self._arcs[self._next] = arc
        self._leaving.setdefault(arc.source, []).append(self._next)
        self._reaching.setdefault(arc.target, []).append(self._next)
        self._next += 1
