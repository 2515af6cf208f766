"""Calls are compared with their graph: mistakes name the buffer, and arrays keep their bits."""

import base64
import json
import struct

import numpy as np
import pytest
from kernel_graphs import gemm_chain, graph_of

from aliquot.kernels.binding import FileInput, InlineInput, ObjectInput, OutputTarget, bind_file, bind_json
from aliquot.kernels.reading import GraphRefused
from aliquot.kernels.tensors import (
    DTYPES,
    TensorError,
    from_bytes,
    make_header,
    pack_scalar,
    read_header,
    to_bytes,
)


@pytest.fixture(scope="module")
def graph():
    document, _ = gemm_chain(size=2)
    document["literals"] = {"alpha": {"dtype": "f4", "default": 1}, "count": {"dtype": "u1"}}
    document["kernels"][0]["arguments"] += [{"literal": "alpha"}, {"literal": "count"}]
    return graph_of(document | {"iterations": 10})


def complaints_of(bind, *arguments):
    with pytest.raises(GraphRefused) as refused:
        bind(*arguments)
    return [str(complaint) for complaint in refused.value.complaints]


def test_a_call_gives_every_input_and_literal(graph):
    call = bind_json(graph, {"inputs": {"x": [[1, 2], [3, 4.5]]}, "literals": {"count": 3}})
    assert call.inputs == {"x": InlineInput(np.array([[1, 2], [3, 4.5]], np.float32).tobytes())}
    assert call.literals == {"alpha": 1, "count": 3}
    assert call.iterations == 10
    assert call.answered_bytes(graph) == 16


def test_inputs_and_outputs_may_be_objects(graph):
    body = {"inputs": {"x": {"key": "runs/7/x"}}, "literals": {"count": 0}, "iterations": 2}
    call = bind_json(graph, body | {"outputs": {"y": {"key": "runs/7/y", "stay": True}}})
    assert call.inputs == {"x": ObjectInput("runs/7/x")}
    assert call.outputs == {"y": OutputTarget("runs/7/y", stay=True)}
    assert call.answered_bytes(graph) == 0
    encoded = base64.b64encode(bytes(16)).decode()
    assert bind_json(graph, body | {"inputs": {"x": {"base64": encoded}}}).inputs == {"x": InlineInput(bytes(16))}


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ({}, "input 'x': is missing"),
        ({"x": [[1, 2]]}, "input 'x': the value is a list of 1; expected a list of 2"),
        ({"x": [[1, 2], [3]]}, "input 'x': element [1] is a list of 1; expected a list of 2"),
        ({"x": [[1, 2], [3, "4"]]}, "input 'x': element [1, 1]: '4' is not a number"),
        ({"x": [[1, 2], [3, True]]}, "input 'x': element [1, 1]: True is not a number"),
        ({"x": {"key": "../y"}}, "input 'x': is {'key': '../y'}; expected lists of numbers, "),
        ({"x": {"base64": "????"}}, "input 'x': base64 cannot be decoded"),
        ({"x": {"base64": "AAAA"}}, "input 'x': has 3 bytes; f4[2, 2] takes 16"),
        ({"t1": [[0, 0], [0, 0]]}, "input 't1': no such input; known are x"),
    ],
)
def test_a_wrong_input_is_named(graph, inputs, complaint):
    assert complaints_of(bind_json, graph, {"inputs": inputs, "literals": {"count": 0}})[0].startswith(complaint)


def test_all_other_mistakes_are_told_at_once(graph):
    body = {
        "inputs": {"x": {"key": "x"}},
        "outputs": {"z": {}, "y": {"key": ""}},
        "literals": {"beta": 1, "count": 256},
        "iterations": 11,
        "device": 0,
    }
    assert complaints_of(bind_json, graph, body) == [
        "output 'z': no such output; known are y",
        "outputs.y.key: is ''; expected the name of an object",
        "literal 'beta': no such literal; known are alpha, count",
        "literal 'count': 256 is not between 0 and 255",
        "iterations: is 11; expected a whole number from 1 to 10",
        "device: is not known; known are inputs, iterations, literals, outputs",
    ]


def test_a_file_is_a_call_whose_arrays_stay_where_they_are(graph):
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    header = make_header({"x": ("f4", (2, 2))}, {"call": json.dumps({"literals": {"count": 1}})})
    file = read_header(header + x.tobytes())
    call = bind_file(graph, file)
    assert call.inputs == {"x": FileInput(len(header), len(header) + 16)}
    assert file.size_bytes == len(header) + 16
    wrong = read_header(make_header({"x": ("f8", (2, 2)), "w0": ("f4", (1,))}))
    assert complaints_of(bind_file, graph, wrong) == [
        "input 'x': is f8[2, 2]; expected f4[2, 2]",
        "input 'w0': no such input; known are x",
    ]
    both = read_header(make_header({"x": ("f4", (2, 2))}, {"call": '{"inputs": {"x": {"key": "k"}}}'}))
    assert "input 'x': is in the file and in the call; expected one of both" in complaints_of(bind_file, graph, both)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "a safetensors file begins with 8 bytes of length; there are 1"),
        (struct.pack("<Q", 2**63), "the header has 9223372036854775808 bytes; at most 1048576 are read"),
        (struct.pack("<Q", 9) + b"{}", "the header has 9 bytes, and the file ends after 10"),
        (struct.pack("<Q", 1) + b"{", "the header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "the header is not a JSON object"),
        (struct.pack("<Q", 19) + b'{"__metadata__":[]}', "__metadata__ must be an object of texts"),
    ],
)
def test_a_damaged_file_is_refused(data, reason):
    with pytest.raises(TensorError, match=reason.replace("(", r"\(").replace(")", r"\)")):
        read_header(data)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dtype": "F32", "shape": [2]}, "expected dtype, shape and data_offsets"),
        ({"dtype": "F4", "shape": [2], "data_offsets": [0, 8]}, "dtype is 'F4'"),
        ({"dtype": [], "shape": [2], "data_offsets": [0, 8]}, "dtype is"),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "shape must be a list"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}, "data_offsets must be two"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 7]}, "7 bytes; its dtype and shape take 8"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}, "begins at byte 8; expected 0"),
    ],
)
def test_an_entry_that_does_not_fit_its_file_is_refused(fields, reason):
    text = json.dumps({"x": fields}).encode()
    with pytest.raises(TensorError, match=reason):
        read_header(struct.pack("<Q", len(text)) + text)


NUMPY = {name: name for name in DTYPES if name not in ("bool", "bf16")} | {"bool": "?"}


def test_the_outputs_of_the_graph_before_are_inputs_of_equal_names(graph):
    before = {"kernels": {"hits": 1}, "outputs": {"x": {"key": "k"}, "other": [1]}, "literals": {"count": 3}}
    call = bind_json(graph, before)
    assert call.inputs == {"x": ObjectInput("k")}
    assert (call.outputs, call.literals["count"]) == ({}, 3)
    with pytest.raises(GraphRefused, match="input 'x': is missing"):
        bind_json(graph, before | {"outputs": {"other": [1]}})


@pytest.mark.parametrize("dtype", NUMPY)
def test_arrays_have_the_bytes_that_numpy_gives_them(dtype):
    values = np.array([[[0, 1, 1], [1, 0, 1]], [[1, 1, 0], [0, 0, 1]]]).astype(NUMPY[dtype])
    assert to_bytes(dtype, (2, 2, 3), values.tolist()) == values.tobytes()
    assert from_bytes(dtype, (2, 2, 3), values.tobytes()) == values.tolist()
    assert from_bytes(dtype, (), values.flat[1].tobytes()) == values.flat[1]


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.0, 0x3F80), (-2.5, 0xC020), (3.14159265, 0x4049), (1e39, 0x7F80), (1.00390625, 0x3F80), (float("nan"), 0x7FC0)],
)
def test_bfloat16_rounds_to_the_nearest(value, bits):
    assert pack_scalar("bf16", value) == struct.pack("<H", bits)
    again = from_bytes("bf16", (1,), struct.pack("<H", bits))[0]
    assert np.isnan(again) if np.isnan(value) else struct.unpack("<I", struct.pack("<f", again))[0] >> 16 == bits


def test_numbers_too_large_for_a_float_become_infinite():
    assert from_bytes("f2", (2,), to_bytes("f2", (2,), [1e9, -1e9])) == [float("inf"), float("-inf")]
