"""Graphs are read and checked: every mistake is told at once, with its place."""

import copy
import json

import pytest
from kernel_graphs import gemm_chain, graph_of

from aliquot.kernels.check import DeviceLimits, check_graph, check_limits
from aliquot.kernels.digest import canonical, digest
from aliquot.kernels.graph import BufferArgument, ModelGraph
from aliquot.kernels.reading import GraphRefused, read_graph


@pytest.fixture
def document():
    return copy.deepcopy(gemm_chain(size=16)[0])


def complaints_of(document):
    with pytest.raises(GraphRefused) as refused:
        graph_of(document)
    return [str(complaint) for complaint in refused.value.complaints]


def checked(document):
    return [str(complaint) for complaint in check_graph(graph_of(document))]


def test_a_graph_is_read_with_its_defaults(document):
    graph = graph_of(document)
    assert graph.iterations == 1
    assert graph.kernels[0].arguments[2] == BufferArgument("t1", reads=False, writes=True)
    assert graph.buffers["t1"].is_zeroed
    assert graph.buffers["t1"].size_bytes == 16 * 16 * 4
    assert check_graph(graph) == []


def test_a_model_is_a_digest_and_shapes():
    graph = graph_of({"form": "onnx", "model": {"sha256": "ab" * 32}, "shapes": {"x": [1, 3, 8, 8]}})
    assert graph == ModelGraph("ab" * 32, {"x": (1, 3, 8, 8)})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "the graph: is not JSON"),
        ("[" * 100_000, "the graph: is not JSON"),
        ("[]", "the graph: is []; expected an object"),
        ('{"form": "metal"}', "form: is 'metal'; expected one of opencl, cuda, onnx"),
        ('{"form": "opencl", "iterations": NaN}', "the graph: is not JSON: NaN is not a JSON number"),
    ],
)
def test_a_text_that_is_no_graph_is_refused(text, complaint):
    with pytest.raises(GraphRefused) as refused:
        read_graph(text)
    assert str(refused.value.complaints[0]).startswith(complaint)


def test_all_mistakes_are_told_at_once(document):
    document["buffers"]["x"]["dtype"] = "f3"
    document["buffers"]["2nd"] = {"kind": "input"}
    document["buffers"]["w0"]["sha256"] = "short"
    document["programs"]["p"]["options"] = ["-I/etc"]
    document["kernels"][1]["block"] = [16]
    document["kernels"][2]["arguments"].append({"i1": 300})
    document["kernels"][3]["arguments"].append({"in": "x", "out": "y"})
    document["iterations"] = 0
    document["colour"] = "red"
    assert complaints_of(document) == [
        "programs.p.options[0]: is '-I/etc'; options begin with -D, -U, -cl-, -w, -Werror",
        "buffers.x.dtype: is 'f3'; expected one of bool, i1, i2, i4, i8, u1, u2, u4, u8, f2, f4, f8, bf16",
        "buffers.w0.sha256: is 'short'; expected a SHA-256 as 64 lower-case hexadecimal digits",
        "buffers: '2nd' is no name; a name begins with a letter or _ and has at most 128 letters, digits, _, . and -",
        "kernels[1].block: has 1 dimensions and grid has 2; expected as many",
        "kernels[2].arguments[4].i1: 300 is not between -128 and 127",
        "kernels[3].arguments[4]: expected an object with one field: in, out, inout, literal, local, or a type like i4",
        "iterations: is 0; expected a whole number from 1 to 1000000",
        "colour: is not known; known are buffers, form, iterations, kernels, literals, programs, until",
    ]


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("kernels", [{}] * 4097, "kernels: has 4097 items; at most 4096 are accepted"),
        (
            "programs",
            {f"p{n}": {"source": "x"} for n in range(65)},
            "programs: has 65 entries; at most 64 are accepted",
        ),
        ("programs", {"p": {"source": "x" * (2**20 + 1)}}, "programs.p.source: has 1048577 bytes; at most 1048576"),
        ("programs", {"p": {"source": " "}}, "programs.p.source: is empty; expected the source of the program"),
        ("buffers", {"x": {"kind": "input", "dtype": "f4", "shape": [1] * 9}}, "buffers.x.shape: is [1, 1,"),
        ("buffers", {"x": {"kind": "input", "dtype": "f8", "shape": [2**40, 2**40]}}, "buffers.x.shape: takes"),
        ("until", {"buffer": "y", "below": "0"}, "until.below: is '0'; expected a number"),
    ],
)
def test_limits_are_told_with_their_numbers(document, field, value, complaint):
    document[field] = value
    assert complaints_of(document)[0].startswith(complaint)


def test_names_are_checked_against_each_other(document):
    document["kernels"][1]["arguments"][0] = {"in": "nothing"}
    document["kernels"][2]["arguments"][2] = {"out": "w0"}
    document["kernels"][3]["program"] = "q"
    document["kernels"][3]["arguments"].append({"literal": "alpha"})
    document["buffers"]["spare"] = {"kind": "temporary", "dtype": "f4", "shape": [1]}
    document["buffers"]["z"] = {"kind": "output", "dtype": "f4", "shape": [1]}
    known = ", ".join(document["buffers"])
    assert checked(document) == [
        f"kernels[1] gemm, argument 0 'nothing': no such buffer; known are {known}",
        "kernels[2] gemm, argument 2 'w0': a buffer of kind const is read only; write an output or a temporary",
        "kernels[3] gemm: program 'q' is not known; known are p",
        "kernels[3] gemm, argument 4 'alpha': no such literal; known are none",
        "buffers.z: no kernel writes this output",
        "buffers.spare: no kernel uses it; remove it",
    ]


def test_equal_digests_with_unequal_sizes_are_a_mistake(document):
    document["buffers"]["n1"]["sha256"] = document["buffers"]["w1"]["sha256"]
    assert checked(document) == ["buffers.n1: takes 32 bytes, and 'w1' with the same digest takes 1024"]


def test_a_stop_rule_reads_one_number_that_is_written(document):
    document["until"] = {"buffer": "x", "below": 1e-6, "every": 50}
    assert checked(document) == [
        "until.buffer: 'x' is f4[16, 16]; expected one element of f4 or f8",
        "until.buffer: no kernel writes 'x'",
        "until: the graph runs once; set iterations to the most that may run",
    ]


def test_kernels_above_the_limits_of_every_device_are_named(document):
    document["kernels"][0]["arguments"].append({"local": 65536})
    graph = graph_of(document)
    devices = [DeviceLimits("small", 64, 32768), DeviceLimits("large", 128, 49152)]
    complaints = list(map(str, check_limits(graph, devices)))
    assert complaints[0] == "kernels[0] gemm: a block has 256 work-items; the most is 128 (large)"
    assert complaints[1] == "kernels[0] gemm: takes 65536 bytes of local memory; the most is 49152 (large)"
    assert len(complaints) == 5
    assert check_limits(graph, [*devices, DeviceLimits("host", 4096, 2**20)]) == []


def test_equal_graphs_have_one_digest_however_they_are_written(document):
    graph = graph_of(document)
    reordered = dict(reversed(document.items())) | {"iterations": 1, "literals": {}, "until": None}
    assert digest(graph_of(reordered)) == digest(graph)
    assert read_graph(canonical(graph)) == read_graph(json.dumps(document))
    document["kernels"].reverse()
    assert digest(graph_of(document)) != digest(graph)
