"""Models in the ONNX format become graphs of one kernel, from their files alone."""

import hashlib
import json

import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from aliquot.kernels.check import check_graph
from aliquot.kernels.digest import describe
from aliquot.kernels.graph import ModelGraph
from aliquot.kernels.models import model_kernels
from aliquot.kernels.plan import MODEL_BYTES, plan_memory
from aliquot.kernels.reading import GraphRefused, read_graph

np = pytest.importorskip("numpy")


def model_of(nodes, inputs, outputs, weights=None, *, inferred=True):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "test",
        [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return (shape_inference.infer_shapes(model) if inferred else model).SerializeToString()


def read(data, **shapes):
    return model_kernels(ModelGraph(hashlib.sha256(data).hexdigest(), shapes), data)


def complaints_of(data, **shapes):
    with pytest.raises(GraphRefused) as refused:
        read(data, **shapes)
    return [str(complaint) for complaint in refused.value.complaints]


CHAIN = model_of(
    [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"]),
     helper.make_node("Abs", ["b"], ["c"]), helper.make_node("MatMul", ["c", "w"], ["y"])],
    {"x": ["n", 64]},
    {"y": ["n", 8]},
    {"w": np.ones((64, 8), "f4")},
)  # fmt: skip


def test_memory_follows_from_weights_and_from_values_between_nodes():
    graph = read(CHAIN, x=(4, 64))
    assert check_graph(graph) == []
    plan = plan_memory(graph)
    assert plan.memory_bytes == 2 * 64 * 8 * 4 + MODEL_BYTES
    assert plan.arena_bytes == 1024 + 256  # x and y
    assert plan.run_bytes == plan.arena_bytes + 2 * 1024  # of a, b and c only two are needed at once


def test_a_graph_of_a_model_is_read_as_it_was_described():
    graph = read(CHAIN, x=(4, 64))
    assert read_graph(json.dumps(describe(graph))) == graph
    short = read_graph(json.dumps({"form": "onnx", "model": {"sha256": "0" * 64}, "shapes": {"x": [4, 64]}}))
    assert short == ModelGraph("0" * 64, {"x": (4, 64)})


def test_sizes_that_the_model_leaves_open_are_asked_for():
    assert complaints_of(CHAIN)[0] == "shapes.x: its shape in the model is [n, 64]; give it in shapes"
    assert complaints_of(CHAIN, x=(4, 32)) == ["shapes.x: is [4, 32]; the model takes [n, 64]"]
    assert complaints_of(CHAIN, x=(4, 64), z=(1,)) == ["shapes.z: no such input; the model has x"]
    add = model_of([helper.make_node("Add", ["x", "z"], ["y"])], {"x": ["n"], "z": ["n"]}, {"y": ["n"]})
    assert complaints_of(add, x=(4,), z=(5,)) == ["shapes.z: is [5]; the model takes [n] with n = 4"]


def test_a_model_without_the_shapes_of_its_values_is_refused():
    bare = model_of(
        [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])],
        {"x": [4]}, {"y": [4]}, inferred=False,
    )  # fmt: skip
    (complaint,) = complaints_of(bare)
    assert complaint.startswith("value 'a' of the model: its shape in the model is none; onnx.shape_inference")


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"\x3a\xff\x01", CHAIN[: len(CHAIN) // 2], b"\xff" * 30])
def test_a_file_that_is_no_model_is_refused(data):
    (complaint,) = complaints_of(data, x=(4, 64))
    assert complaint.startswith("model: the file is no ONNX model: ")


def test_a_file_that_is_made_to_be_slow_is_refused():
    many = b"\x3a\x80\x80\x80\x01" + b"\x0a\x00" * 2**20  # a graph of so many empty nodes
    assert complaints_of(many) == ["model: the file is no ONNX model: it has more than 1000000 fields"]
    long_name = b"\x3a\x84\x10" + b"\x5a\x81\x10" + b"\x0a\xfe\x0f" + b"x" * 2046
    (complaint,) = complaints_of(long_name)
    assert complaint == "model: the file is no ONNX model: a name has more than 1024 bytes"


def test_launches_of_a_model_are_compared_with_its_inputs_and_outputs():
    document = describe(read(CHAIN, x=(4, 64)))
    document["buffers"]["x"]["shape"] = [64, 4]
    document["kernels"][0]["arguments"][1] = {"in": "y"}
    assert [str(one) for one in check_graph(read_graph(json.dumps(document)))][:2] == [
        "buffers.y: no kernel writes this output",
        "kernels[0] run, argument 0 'x': is f4[64, 4]; the model's 'x' is f4[4, 64]",
    ]
