"""Kernel graphs that are built in Python are the documents that the platform reads."""

import json

import numpy as np
import pytest

import aliquot
from aliquot.kernels import boolean, f4, i4, inout, local, out
from aliquot.kernels.tensors import make_header, read_header
from aliquot.sdk.errors import UsageError
from aliquot.sdk.kernels import arrays

SOURCE = "__kernel void scale(__global const float *x, __global float *y, float by) {}"


@pytest.fixture
def graph():
    return aliquot.App("shop").kernel_graph("scaled", share=0.25)


def fill(graph):
    x = graph.input("x", "f4", (4,))
    y = graph.output("y", "f4", (4,), zero=False)
    graph.launch(graph.program(SOURCE)["scale"], 1, 4, x, out(y), graph.literal("by", "f4", default=2))
    return graph


def test_a_built_graph_is_the_document_with_every_default(graph):
    document = fill(graph).document()
    assert graph.action == "shop.scaled"
    assert document["programs"] == {"p0": {"source": SOURCE, "options": []}}
    assert document["buffers"]["y"] == {"kind": "output", "dtype": "f4", "shape": [4], "zero": False}
    assert document["kernels"] == [
        {"program": "p0", "entry": "scale", "grid": [1], "block": [4],
         "arguments": [{"in": "x"}, {"out": "y"}, {"literal": "by"}]}
    ]  # fmt: skip


def test_constants_are_named_by_their_bytes(graph):
    graph.const("w", np.arange(4, dtype="i4"))
    graph.const("same", np.arange(4, dtype="i4"))
    buffers = graph._document["buffers"]
    assert buffers["w"] == buffers["same"]
    assert list(graph._blobs) == [buffers["w"]["sha256"]]


def test_scalars_and_accesses_are_written_as_in_json():
    assert [i4(np.int64(7)), f4(0.5), boolean(True), local(64)] == [
        ("i4", 7),
        ("f4", 0.5),
        ("bool", True),
        ("local", 64),
    ]
    assert inout(out(aliquot.App("a").kernel_graph("g").temporary("t", "f4", ()))) == ("inout", "t")
    with pytest.raises(TypeError, match="expected a buffer"):
        out(i4(1))


def test_all_mistakes_of_a_graph_are_told_at_its_first_use(graph):
    x = graph.input("x", "f3", (0,))
    graph.launch(graph.program(SOURCE)["scale"], 1, 4, x)
    with pytest.raises(UsageError) as refused:
        graph.document()
    assert "buffers.x.dtype: is 'f3'" in str(refused.value)
    assert "buffers.x.shape: is [0]" in str(refused.value)


def test_what_is_no_argument_or_named_twice_is_refused_where_it_is_written(graph):
    graph.input("x", "f4", (4,))
    with pytest.raises(UsageError, match="buffers has 'x' already"):
        graph.output("x", "f4", (4,))
    with pytest.raises(UsageError, match="scale: 7 does not fit; it takes a buffer"):
        graph.launch(("p", "scale"), 1, 1, 7)
    with pytest.raises(UsageError, match="has a function or graph 'scaled' already"):
        graph.app.kernel_graph("scaled")


def test_a_graph_that_was_used_is_complete(graph):
    fill(graph).document()
    with pytest.raises(UsageError, match="nothing can be added to this graph; it has been used"):
        graph.temporary("t", "f4", (1,))


def test_arguments_of_a_call_are_compared_with_the_graph(graph):
    checked = fill(graph).checked()
    x = np.ones(4, "f4")
    assert arrays.bind(checked, {"x": x, "by": np.float32(3)}) == ({"x": x.tobytes()}, {"by": 3.0})
    assert arrays.bind(checked, {"x": [1, 1, 1, 1]})[0] == {"x": x.tobytes()}
    for given, text in (
        ({}, "input 'x' is missing"),
        ({"x": x, "z": 1}, "no input or literal 'z'; the graph has x, by"),
        ({"x": x.astype("f8")}, r"input 'x' is float64\[4\]; expected f4\[4\]"),
        ({"x": x, "by": "two"}, "literal 'by': 'two' is not a number"),
    ):
        with pytest.raises(UsageError, match=text):
            arrays.bind(checked, given)


def test_objects_are_named_in_calls_and_answers(graph):
    checked = fill(graph).checked()
    file = arrays.call_file(checked, {"x": {"key": "a"}, "by": 3}, None, {"y": "b"})
    said = json.loads(read_header(file).metadata["call"])
    assert said == {"literals": {"by": 3}, "inputs": {"x": {"key": "a"}}, "outputs": {"y": {"key": "b"}}}
    answer = make_header({}, {"outputs": json.dumps({"y": {"key": "b"}})})
    assert arrays.read_file(checked, answer) == {"y": {"key": "b"}}
    sent = make_header({"y": ("f4", [4])}) + np.arange(4, dtype="f4").tobytes()
    assert arrays.read_file(checked, sent)["y"].tolist() == [0, 1, 2, 3]
