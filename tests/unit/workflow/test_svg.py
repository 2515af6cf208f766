"""Drawings as SVG: layers without overlaps, marks of an execution, and names that cannot run a script."""

from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_definitions import DEFINITIONS
from workflow_shell import FOREVER, START, Shell, compiled, error

from aliquot.workflow.drawing import draw_svg
from aliquot.workflow.drawing.layers import MAX_NODES_AND_BENDS, Size, lay_out
from aliquot.workflow.graph import graph_of
from aliquot.workflow.marks import StateMark, replay_marks

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    '"onload="alert(1)',
    "]]>&amp;",
    "\x00\x1b\ud800",
    "(end)",
    "(start)",
    "日本" * 20,
]
ALLOWED = {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "circle", "text"}
PLAIN_ATTRIBUTES = {"class", "d", "x", "y", "width", "height", "rx", "cx", "cy", "r", "transform", "viewBox", "role"}


def parsed(svg):
    return ET.fromstring(svg.encode())  # noqa: S314 - our own


def chain(names, kind="Pass"):
    states = {name: {"Type": kind, "Next": following} for name, following in pairwise(names)}
    return {"StartAt": names[0], "States": {**states, names[-1]: {"Type": "Succeed", "Comment": names[0]}}}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_state_of_a_definition_is_drawn(name):
    graph = graph_of(compiled(DEFINITIONS[name]))
    root = parsed(draw_svg(graph))
    shown = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert sorted(shown) == sorted(node.name for node in graph.nodes)
    assert draw_svg(graph) == draw_svg(graph_of(compiled(DEFINITIONS[name])))


def test_hostile_names_are_text():
    root = parsed(draw_svg(graph_of(compiled(chain(HOSTILE))), title="<script>"))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= ALLOWED
    for element in root.iter():
        extra = set(element.keys()) - PLAIN_ATTRIBUTES
        assert not extra or element.tag in {f"{SVG}marker", f"{SVG}path"}, extra
        assert not [name for name in extra if name.startswith("on") or "href" in name]
    assert HOSTILE[0] in "".join(root.itertext())


def test_the_picture_has_colours_for_light_and_dark_pages():
    svg = draw_svg(graph_of(compiled(chain(["A", "B"]))))
    assert svg.count(".succeeded > .box") == 2
    assert "@media (prefers-color-scheme: dark)" in svg


EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25)
SIZES = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 200)), min_size=10, max_size=10)


@given(SIZES, EDGES)
def test_no_box_overlaps_another_and_no_edge_crosses_a_box_of_another_layer(sizes, edges):
    boxes = [Size(*map(float, size)) for size in sizes]
    layout = lay_out(boxes, edges)
    for (a, one), (b, other) in combinations(zip(layout.places, boxes, strict=True), 2):
        apart_x = abs(a.x - b.x) - (one.width + other.width) / 2
        apart_y = abs(a.y - b.y) - (one.height + other.height) / 2
        assert max(apart_x, apart_y) > -0.001
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert route[0] == layout.places[source]
        assert route[-1] == layout.places[target]
        for point in route[1:-1]:
            assert all(
                abs(point.x - at.x) >= box.width / 2 or abs(point.y - at.y) >= box.height / 2 - 0.001
                for at, box in zip(layout.places, boxes, strict=True)
            )
    assert layout == lay_out(boxes, edges)


def test_a_graph_with_very_many_long_edges_has_a_bounded_number_of_bends():
    count = 500
    edges = [(n, n + 1) for n in range(count - 1)] + [(n, count - 1) for n in range(count - 1)]
    layout = lay_out([Size(10, 10)] * count, edges)
    assert sum(len(route) - 2 for route in layout.routes) <= 2 * MAX_NODES_AND_BENDS
    assert [place.y for place in layout.places] == sorted(place.y for place in layout.places)


FLOW = {
    "StartAt": "Load",
    "States": {
        "Load": {
            "Type": "Task",
            "Resource": "load",
            "Next": "Each",
            "Catch": [{"ErrorEquals": ["Broken"], "Next": "Each", "ResultPath": None}],
        },
        "Each": {
            "Type": "Map",
            "ItemProcessor": {
                "StartAt": "One",
                "States": {"One": {"Type": "Task", "Resource": "one", "Next": "Two"}, "Two": {"Type": "Succeed"}},
            },
            "End": True,
        },
    },
}


def marks(functions, until=None):
    shell = Shell(FLOW, functions).start([1, 2, 3])
    shell.go_on(until=until)
    return shell, replay_marks(shell.machine, shell.log)


def test_marks_tell_where_an_execution_stands_and_what_it_has_done():
    shell, found = marks({"load": error("Broken"), "one": lambda n, _: n if n < 3 else FOREVER}, START + 1)
    assert found == {
        "Load": StateMark("caught"),
        "Each": StateMark("current", 1, 1),
        "One": StateMark("current", 3, 1),
        "Two": StateMark("succeeded", 2),
    }
    root = parsed(draw_svg(graph_of(shell.machine), found))
    classes = [group.get("class") for group in root.iter(f"{SVG}g") if group.get("class")]
    assert sorted(classes) == ["caught", "current", "current", "succeeded"]
    shown = "\n".join(root.itertext())
    assert "↷ Load" in shown
    assert "entered 3 times, 1 in it now" in shown


def test_marks_tell_where_an_execution_failed():
    def one(number, _):
        return FOREVER if number == 1 else error("E")()

    _, found = marks({"load": lambda value, _: value, "one": one})
    assert {name: mark.status for name, mark in found.items()} == {
        "Load": "succeeded",
        "Each": "failed",
        "One": "failed",
    }
