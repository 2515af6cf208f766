"""Place the nodes of a graph in layers, so that most edges lead downwards and few cross.

The steps are those of Sugiyama. Edges that close a loop are turned round. Each node gets the layer after its furthest
predecessor. Edges over several layers get a bend in each layer between. The order in a layer follows the neighbours.
Equal graphs have equal drawings: nothing depends on a hash, and ties keep the order of the definition.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

MAX_NODES_AND_BENDS = 10_000
SWEEPS = 4
COLUMN_GAP, LAYER_GAP = 28.0, 46.0
BEND_WIDTH = 8.0


class Size(NamedTuple):
    """The width and height of a box."""

    width: float
    height: float


class Point(NamedTuple):
    """A place in a drawing. For a box it is the middle."""

    x: float
    y: float


class Layout(NamedTuple):
    """The middle of each node, the points along each edge from its source to its target, and the whole size."""

    places: list[Point]
    routes: list[list[Point]]
    size: Size


def lay_out(sizes: Sequence[Size], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place nodes of these sizes, the first one at the top. An edge has the numbers of its source and its target."""
    turned = _closing(len(sizes), edges)
    down = [edge[::-1] if closes else edge for edge, closes in zip(edges, turned, strict=True)]
    grid = _Grid(sizes, _layers(len(sizes), down))
    chains = [grid.add_edge(source, target) for source, target in down]
    grid.order()
    places = grid.places()
    routes = []
    for chain, closes in zip(chains, turned, strict=True):
        points = [places[chain[0]], *(end for node in chain[1:-1] for end in grid.ends(node)), places[chain[-1]]]
        routes.append(points[::-1] if closes else points)
    boxes = list(zip(places, grid.sizes, strict=True))
    width = max((place.x + size.width / 2 for place, size in boxes), default=0.0)
    height = max((place.y + size.height / 2 for place, size in boxes), default=0.0)
    return Layout(places[: len(sizes)], routes, Size(width, height))


def _closing(count: int, edges: Sequence[tuple[int, int]]) -> list[bool]:
    """Return which edges close a loop, as a walk from the first node finds them."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    for number, (source, _) in enumerate(edges):
        leaving[source].append(number)
    closing = [False] * len(edges)
    seen, left = [False] * count, [False] * count
    for first in range(count):
        if seen[first]:
            continue
        seen[first] = True
        way = [(first, iter(leaving[first]))]
        while way:
            node, rest = way[-1]
            edge = next(rest, None)
            if edge is None:
                left[node] = True
                way.pop()
                continue
            target = edges[edge][1]
            if not seen[target]:
                seen[target] = True
                way.append((target, iter(leaving[target])))
            elif not left[target]:
                closing[edge] = True
    return closing


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each node: one more than that of its furthest predecessor."""
    targets: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in edges:
        if source != target:
            targets[source].append(target)
            waits[target] += 1
    layers = [0] * count
    ready = [node for node in range(count) if waits[node] == 0]
    for node in ready:  # which grows
        for target in targets[node]:
            layers[target] = max(layers[target], layers[node] + 1)
            waits[target] -= 1
            if waits[target] == 0:
                ready.append(target)
    return layers


class _Grid:
    """Nodes and bends in layers. Bends are numbered after the nodes."""

    def __init__(self, sizes: Sequence[Size], layers: list[int]) -> None:
        self.sizes = list(sizes)
        self._layers = list(layers)
        self._rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
        for node, layer in enumerate(layers):
            self._rows[layer].append(node)
        self._above: list[list[int]] = [[] for _ in sizes]
        self._below: list[list[int]] = [[] for _ in sizes]
        self._places: list[Point] = []
        self._heights: list[float] = []  # of the layers

    def add_edge(self, source: int, target: int) -> list[int]:
        """Add an edge that leads down, and return its nodes: source, bends, target."""
        chain = [source]
        between = range(self._layers[source] + 1, self._layers[target])
        if len(self.sizes) + len(between) <= MAX_NODES_AND_BENDS:
            chain += [self._add_bend(layer) for layer in between]
        chain.append(target)
        for upper, lower in pairwise(chain):
            if upper != lower:
                self._below[upper].append(lower)
                self._above[lower].append(upper)
        return chain

    def _add_bend(self, layer: int) -> int:
        self.sizes.append(Size(BEND_WIDTH, 0))
        self._layers.append(layer)
        self._above.append([])
        self._below.append([])
        self._rows[layer].append(len(self.sizes) - 1)
        return len(self.sizes) - 1

    def order(self) -> None:
        """Sort each layer by the mean position of the neighbours above, then of those below, some times."""
        at = [0.0] * len(self.sizes)
        for row in self._rows:
            _number(row, at)
        for _ in range(SWEEPS):
            for rows, near in ((self._rows[1:], self._above), (self._rows[-2::-1], self._below)):
                for row in rows:
                    keys = {node: _mean(node, near, at) for node in row}
                    row.sort(key=keys.__getitem__)
                    _number(row, at)

    def places(self) -> list[Point]:
        """Return the middle of each node and bend."""
        across = [0.0] * len(self.sizes)
        for row in self._rows:
            _spread(row, self.sizes, [0.0] * len(row), across)
        for _ in range(SWEEPS):
            for rows, near in ((self._rows, self._above), (self._rows[::-1], self._below)):
                for row in rows:
                    _spread(row, self.sizes, [_mean(node, near, across) for node in row], across)
        left = min((at - size.width / 2 for at, size in zip(across, self.sizes, strict=True)), default=0.0)
        made = self._places = [Point(0, 0)] * len(self.sizes)
        top = 0.0
        for row in self._rows:
            height = max(self.sizes[node].height for node in row)
            self._heights.append(height)
            for node in row:
                made[node] = Point(across[node] - left, top + height / 2)
            top += height + LAYER_GAP
        return made

    def ends(self, bend: int) -> tuple[Point, Point]:
        """Return where an edge enters and leaves the layer of a bend. Between them it leads straight down."""
        x, y = self._places[bend]
        half = self._heights[self._layers[bend]] / 2
        return Point(x, y - half), Point(x, y + half)


def _number(row: list[int], at: list[float]) -> None:
    for position, node in enumerate(row):
        at[node] = float(position)


def _mean(node: int, near: list[list[int]], at: list[float]) -> float:
    """Return the mean position of the neighbours, or that of the node itself if it has none."""
    found = near[node]
    return sum(at[other] for other in found) / len(found) if found else at[node]


def _spread(row: list[int], sizes: list[Size], wishes: list[float], across: list[float]) -> None:
    """Place the nodes of a row as near to their wishes as their order and widths allow.

    One pass pushes to the right and one to the left. The mean of both keeps all gaps.
    """
    rightwards = _pushed(row, sizes, wishes)
    leftwards = _pushed(row[::-1], sizes, [-wish for wish in wishes[::-1]])[::-1]
    for node, right, left in zip(row, rightwards, leftwards, strict=True):
        across[node] = (right - left) / 2


def _pushed(row: list[int], sizes: list[Size], wishes: list[float]) -> list[float]:
    made: list[float] = []
    free = float("-inf")
    for node, wish in zip(row, wishes, strict=True):
        half = sizes[node].width / 2
        made.append(max(wish, free + half))
        free = made[-1] + half + COLUMN_GAP
    return made
