"""Placements of a graph: which kind of device each stage runs on, what this costs, and how long it takes.

A graph of n stages on r kinds of devices has rⁿ placements. The ones worth knowing are those that no other placement
beats in both latency and cost. They are found without listing all: `network.py` composes them from those of series and
parallel parts, and `cut.py` finds them for the graphs that have other parts.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aliquot.core.admission.cut import frontier_of_network
from aliquot.core.admission.network import END, reduced
from aliquot.core.admission.pareto import NOTHING, Label, ParetoFrontier, frontier_of
from aliquot.core.admission.records import Offer, Prefer
from aliquot.core.errors import InputError

MAX_CANDIDATES = 16


class KindChoice(NamedTuple):
    """The latency and the cost of a stage on one kind of device."""

    kind: str
    latency_s: float
    cost: float


class StageChoices(NamedTuple):
    """A stage, the stages whose results it needs, and the kinds of devices that it can run on."""

    name: str
    choices: tuple[KindChoice, ...]
    after: tuple[str, ...] = ()


class GraphPlacement(NamedTuple):
    """A kind of device for each stage, with the latency and the cost of the whole graph on idle devices."""

    latency_s: float
    cost: float
    kinds: Mapping[str, str]


class Placements:
    """The efficient placements of one graph, fastest first."""

    def __init__(self, stages: Iterable[StageChoices]) -> None:
        listed = list(stages)
        _check(listed)
        after = {stage.name: stage.after for stage in listed}
        frontiers = {stage.name: _stage_frontier(stage) for stage in listed}
        arcs = reduced(after, frontiers)
        if not arcs:
            found = NOTHING
        elif len(arcs) == 1 and arcs[0].target == END:
            found = arcs[0].frontier
        else:
            found = frontier_of_network(arcs)
        self._labels = found.labels
        self.exact = found.exact  # no efficient placement was left out

    def __len__(self) -> int:
        return len(self._labels)

    def points(self) -> list[tuple[float, float]]:
        """Return latency and cost of all placements, fastest first."""
        return [(label.latency_s, label.cost) for label in self._labels]

    def candidates(
        self, latency_s: float | None, cost: float | None, prefer: Prefer = Prefer.COST, limit: int = MAX_CANDIDATES
    ) -> list[GraphPlacement]:
        """Return the placements that keep both limits on idle devices, the preferred ones first."""
        within = [
            label
            for label in self._labels
            if (latency_s is None or label.latency_s <= latency_s) and (cost is None or label.cost <= cost)
        ]
        return [_placement(label) for label in self._preferred(within, prefer)[:limit]]

    def never(self, latency_s: float | None, cost: float | None) -> bool:
        """Return whether no placement keeps both limits, even on idle devices."""
        return not self.candidates(latency_s, cost, limit=1)

    def offer(self, latency_s: float | None, cost: float | None) -> Offer:
        """Return limits that idle devices keep, as near to these as possible.

        The latency limit stays if any cost keeps it, or else the cost limit stays, or else it is the fastest way.
        """
        if latency_s is not None and self._labels[0].latency_s <= latency_s:
            cheapest = [label for label in self._labels if label.latency_s <= latency_s][-1]
            return Offer(latency_s, max(cheapest.cost, cost or 0.0))
        if cost is not None and self._labels[-1].cost <= cost:
            fastest = next(label for label in self._labels if label.cost <= cost)
            return Offer(fastest.latency_s, cost)
        return Offer(self._labels[0].latency_s, self._labels[0].cost)

    def _preferred(self, labels: list[Label], prefer: Prefer) -> list[Label]:
        if prefer is Prefer.LATENCY:
            return labels
        if prefer is Prefer.BALANCED:
            return sorted(labels, key=lambda label: label.latency_s * label.cost)
        return labels[::-1]


def _placement(label: Label) -> GraphPlacement:
    return GraphPlacement(label.latency_s, label.cost, label.kinds())


def _stage_frontier(stage: StageChoices) -> ParetoFrontier:
    return frontier_of(Label(choice.latency_s, choice.cost, stage.name, choice.kind) for choice in stage.choices)


def _check(stages: list[StageChoices]) -> None:
    names: set[str] = set()
    for stage in stages:
        if stage.name in names:
            raise InputError(f"stage '{stage.name}' is listed twice; each has a name of its own")
        names.add(stage.name)
        if not stage.choices:
            raise InputError(f"stage '{stage.name}' has no kind of device; it takes at least one")
        for choice in stage.choices:
            if not (choice.latency_s >= 0 and choice.cost >= 0):
                raise InputError(
                    f"stage '{stage.name}' on {choice.kind}: latency {choice.latency_s} s and cost {choice.cost}; "
                    "both take numbers from 0"
                )
