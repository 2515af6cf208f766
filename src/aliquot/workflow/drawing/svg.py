"""Draw the graph of a definition as SVG, with marks for the states of an execution.

The picture has no script and no reference to anything outside. It adapts to a light or a dark page by a media query.
Names come from tenants, so all text is escaped.
"""

import re
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import NamedTuple
from unicodedata import east_asian_width

from aliquot.workflow.drawing.layers import Layout, Point, Size, lay_out
from aliquot.workflow.graph import END, START, Edge, Graph, Node
from aliquot.workflow.marks import StateMark

MAX_SHOWN_CHARACTERS = 30
LETTER, LINE = 7.4, 17.0  # of the font, in pixels
SMALL_LETTER = 6.2
MARGIN, PADDING = 16.0, 12.0
MIN_WIDTH = 96.0
DOT = Size(16, 16)
LOOP = 22.0  # the width of an edge from a state to itself
INNER_GAP = 20.0
ASIDE = 20.0
CATCH = "catch"

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
GLYPHS = {"succeeded": "✓", "current": "●", "failed": "✗", "caught": "↷", "aborted": "⊘"}
STYLE = """
svg { color-scheme: light dark; }
text { font: 13px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central; }
.name { font-weight: 600; }
.small, .label { font-size: 11px; }
.label { paint-order: stroke; stroke-width: 4px; }
.box, .edge { stroke-width: 1.2; }
.inner { stroke-dasharray: 4 3; }
.catch { stroke-dasharray: 5 3; }
.edge, .inner { fill: none; }
"""
# Colours by class: light and dark, of the area and of the line. Plain rules, because some viewers know no variables.
COLOURS = {
    ".page": (("#ffffff", "none"), ("#0d1117", "none")),
    "text": (("#1f2328", "none"), ("#f0f6fc", "none")),
    ".small": (("#59636e", "none"), ("#9198a1", "none")),
    ".label": (("#59636e", "#ffffff"), ("#9198a1", "#0d1117")),
    ".box": (("#f6f8fa", "#59636e"), ("#151b23", "#9198a1")),
    ".dot": (("#59636e", "none"), ("#9198a1", "none")),
    ".edge, .inner": (("none", "#59636e"), ("none", "#9198a1")),
    ".succeeded > .box": (("#dafbe1", "#1a7f37"), ("#12261e", "#3fb950")),
    ".current > .box": (("#ddf4ff", "#0969da"), ("#121d2f", "#4493f8")),
    ".failed > .box": (("#ffebe9", "#cf222e"), ("#25171c", "#f85149")),
    ".caught > .box": (("#fff8c5", "#9a6700"), ("#272115", "#d29922")),
    ".aborted > .box": (("#eaeef2", "#59636e"), ("#212830", "#9198a1")),
}


def _rules(theme: int) -> str:
    return "".join(
        f"{name} {{ fill: {both[theme][0]}; stroke: {both[theme][1]}; }}\n" for name, both in COLOURS.items()
    )


class _Drawn(NamedTuple):
    """A part of the picture, drawn from its own upper left corner."""

    size: Size
    lines: list[str]


def draw_svg(graph: Graph, marks: Mapping[str, StateMark] | None = None, title: str = "Workflow") -> str:
    """Return a picture of a definition. `marks` has the states that an execution has entered."""
    drawn = _machine(_Machines(graph), (), marks or {})
    width, height = drawn.size.width + 2 * MARGIN, drawn.size.height + 2 * MARGIN
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
                f'width="{width:.0f}" height="{height:.0f}" role="img">'
            ),
            f"<title>{_safe(title)}</title>",
            f"<style>{STYLE}{_rules(0)}@media (prefers-color-scheme: dark) {{\n{_rules(1)}}}</style>",
            (
                '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                'orient="auto"><path class="dot" d="M0 0.5 L8 4 L0 7.5 z"/></marker></defs>'
            ),
            f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
            f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">',
            *drawn.lines,
            "</g>",
            "</svg>\n",
        ]
    )


class _Machines:
    """The nodes and edges of each machine of a graph, by its place, and the places inside each state."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: dict[tuple[str, ...], list[Node]] = {}
        self.edges: dict[tuple[str, ...], list[Edge]] = {}
        self.inner: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for node in graph.nodes:
            self.nodes.setdefault(node.inside, []).append(node)
        for edge in graph.edges:
            self.edges.setdefault(edge.inside, []).append(edge)
        for place in self.nodes:
            if place:
                self.inner.setdefault(place[:-1], []).append(place)


def _machine(machines: _Machines, place: tuple[str, ...], marks: Mapping[str, StateMark]) -> _Drawn:
    """Draw a machine: a dot for its start, its states, a ring for its end, and the transitions."""
    nodes, edges = machines.nodes[place], _joined(machines.edges[place])
    boxes = [_state(machines, node, marks) for node in nodes]
    ends = any(edge.target == END for edge in edges)
    numbers = {START: 0, **({END: len(nodes) + 1} if ends else {})}
    numbers.update((node.name, number) for number, node in enumerate(nodes, 1))
    sizes = [DOT, *(box.size for box in boxes), *([DOT] if ends else [])]
    layout = lay_out(sizes, [(numbers[edge.source], numbers[edge.target]) for edge in edges])
    lines = [
        line
        for edge, route in zip(edges, layout.routes, strict=True)
        for line in _edge(edge, route, sizes[numbers[edge.source]], sizes[numbers[edge.target]])
    ]
    for box, at in zip(boxes, layout.places[1:], strict=False):
        lines += [_moved(at.x - box.size.width / 2, at.y - box.size.height / 2), *box.lines, "</g>"]
    lines.append(f'<circle class="dot" cx="{layout.places[0].x:.1f}" cy="{layout.places[0].y:.1f}" r="7"/>')
    if ends:
        at = layout.places[-1]
        lines.append(f'<circle class="box" cx="{at.x:.1f}" cy="{at.y:.1f}" r="7"/>')
        lines.append(f'<circle class="dot" cx="{at.x:.1f}" cy="{at.y:.1f}" r="3.5"/>')
    return _Drawn(_with_loops(layout, edges), lines)


def _joined(edges: list[Edge]) -> list[Edge]:
    """Join transitions between the same two states, so that they are one line with several conditions."""
    labels: dict[tuple[str, str, bool], list[str]] = {}
    for edge in edges:
        labels.setdefault((edge.source, edge.target, edge.label.startswith(CATCH)), []).append(edge.label)
    return [Edge(source, target, ", ".join(filter(None, found))) for (source, target, _), found in labels.items()]


def _with_loops(layout: Layout, edges: list[Edge]) -> Size:
    wider = 2 * LOOP if any(edge.source == edge.target for edge in edges) else 0
    return Size(layout.size.width + wider, layout.size.height)


def _moved(x: float, y: float) -> str:
    return f'<g transform="translate({x:.1f} {y:.1f})">'


def _state(machines: _Machines, node: Node, marks: Mapping[str, StateMark]) -> _Drawn:
    """Draw a state: its name, its type and action, and the machines inside it side by side."""
    mark = marks.get(node.name)
    name = _cut(node.name) if mark is None else f"{GLYPHS[mark.status]} {_cut(node.name)}"
    second = " ".join(filter(None, [node.kind, _cut(node.resource)]))
    counted = _count(mark)
    texts = [("name", name), ("small", second), *([("small", counted)] if counted else [])]
    width = max(MIN_WIDTH, _width(name, LETTER), *(_width(text, SMALL_LETTER) for _, text in texts[1:]))
    height = LINE * len(texts)
    inner = [_inner(machines, place, marks) for place in machines.inner.get((*node.inside, node.name), ())]
    if inner:
        width = max(width, sum(part.size.width for part in inner) + INNER_GAP * (len(inner) - 1))
    box = Size(width + 2 * PADDING, height + 2 * PADDING + _inner_height(inner))
    lines = [
        f'<g class="{mark.status}">' if mark is not None else "<g>",
        f"<title>{_safe(_tooltip(node, mark))}</title>",
        f'<rect class="box" width="{box.width:.1f}" height="{box.height:.1f}" rx="8"/>',
    ]
    for number, (style, text) in enumerate(texts):
        y = PADDING + LINE * (number + 0.5)
        lines.append(f'<text class="{style}" x="{box.width / 2:.1f}" y="{y:.1f}">{_safe(text)}</text>')
    x = (box.width - sum(part.size.width for part in inner) - INNER_GAP * (len(inner) - 1)) / 2
    for part in inner:
        lines += [_moved(x, PADDING * 1.5 + height), *part.lines, "</g>"]
        x += part.size.width + INNER_GAP
    return _Drawn(box, [*lines, "</g>"])


def _inner(machines: _Machines, place: tuple[str, ...], marks: Mapping[str, StateMark]) -> _Drawn:
    """Draw a branch of a Parallel state, or the iterations of a Map state, in a dashed frame."""
    drawn = _machine(machines, place, marks)
    size = Size(max(drawn.size.width, MIN_WIDTH) + 2 * PADDING, drawn.size.height + 2 * PADDING + LINE)
    lines = [
        f'<rect class="inner" width="{size.width:.1f}" height="{size.height:.1f}" rx="6"/>',
        f'<text class="small" x="{size.width / 2:.1f}" y="{LINE / 2 + 2:.1f}">{_safe(place[-1])}</text>',
        _moved((size.width - drawn.size.width) / 2, PADDING + LINE),
        *drawn.lines,
        "</g>",
    ]
    return _Drawn(size, lines)


def _inner_height(inner: list[_Drawn]) -> float:
    return max((part.size.height for part in inner), default=-PADDING / 2) + PADDING / 2


def _edge(edge: Edge, route: list[Point], source: Size, target: Size) -> list[str]:
    """Draw a transition from the border of its source to that of its target, with its condition."""
    style = "edge catch" if edge.label.startswith(CATCH) else "edge"
    first, last = route[0], route[-1]
    if edge.source == edge.target:
        right, y = first.x + source.width / 2, first.y
        way = f"M{right:.1f} {y - 8:.1f} c{LOOP:.0f} -6 {LOOP:.0f} 22 0 16"
        middle = Point(right + LOOP, y)
    else:
        down = 1 if last.y >= first.y else -1
        aside = 0 if down > 0 else ASIDE  # an edge that leads up has another beside it
        begin = Point(first.x + aside, first.y + down * source.height / 2)
        end = Point(last.x + aside, last.y - down * target.height / 2)
        points = [begin, *route[1:-1], end]
        way = f"M{begin.x:.1f} {begin.y:.1f}" + "".join(
            f" C{upper.x:.1f} {(upper.y + lower.y) / 2:.1f} {lower.x:.1f} {(upper.y + lower.y) / 2:.1f} "
            f"{lower.x:.1f} {lower.y:.1f}"
            for upper, lower in pairwise(points)
        )
        middle = Point((points[0].x + points[1].x) / 2, (points[0].y + points[1].y) / 2)
    lines = [f'<path class="{style}" d="{way}" marker-end="url(#head)"/>']
    if edge.label:
        text = f'<text class="label" x="{middle.x:.1f}" y="{middle.y:.1f}">{_safe(_cut(edge.label))}'
        lines.append(f"{text}<title>{_safe(edge.label)}</title></text>")
    return lines


def _count(mark: StateMark | None) -> str:
    """Return how often a state was entered, and how many frames stand in it, if that is not once."""
    if mark is None or (mark.entered == 1 and mark.standing <= 1):
        return ""
    here = f", {mark.standing} in it now" if mark.standing else ""
    return f"entered {mark.entered} times{here}"


def _tooltip(node: Node, mark: StateMark | None) -> str:
    parts = [f"{node.name}: {node.kind}", node.resource, node.comment, mark.status if mark is not None else ""]
    return "\n".join(filter(None, [*parts, _count(mark)]))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"


def _width(text: str, letter: float) -> float:
    """Return the width of a text, about. Letters of Chinese and its like are twice as wide."""
    return letter * sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _safe(text: str) -> str:
    """Return text for XML: characters of its syntax are escaped, and those that XML cannot have are replaced."""
    return escape(NOT_XML.sub("\ufffd", text))
