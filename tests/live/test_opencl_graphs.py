"""Kernel graphs on a real OpenCL device: PoCL, which runs kernels on the processor."""

import json
import shutil

import numpy as np
import pytest
from kernel_graphs import gemm_chain, graph_of

from aliquot.kernels.backends import open_backend
from aliquot.kernels.backends.base import BuildFailed, DeviceFailed, Region
from aliquot.kernels.counters import count_run
from aliquot.kernels.executor.residents import DeviceArena, DeviceConstants, ResidentGraph
from aliquot.kernels.reading import GraphRefused

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")
JACOBI = """
__kernel void sweep(__global const float *b, __global const float *x, __global float *y) {
    int i = get_global_id(0), n = get_global_size(0);
    float left = i ? x[i - 1] : 0, right = i + 1 < n ? x[i + 1] : 0;
    y[i] = (b[i] + left + right) / 4;
}
__kernel void residual(__global const float *x, __global const float *y, __global float *r, __local float *part,
                       int n) {
    float most = 0;
    for (int i = get_local_id(0); i < n; i += get_local_size(0)) most = fmax(most, fabs(x[i] - y[i]));
    part[get_local_id(0)] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        for (int i = 1; i < (int)get_local_size(0); i++) most = fmax(most, part[i]);
        r[0] = most;
    }
}
"""
SCALE = """
__kernel void scale(__global const float *x, __global float *y, float alpha, uchar shift) {
    int i = get_global_id(0);
    y[i] += alpha * x[i] + shift;
}
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        yield open_backend("opencl")


def resident_of(document, device, constants=None, shared=None):
    resident = ResidentGraph(graph_of(document), device, shared or DeviceConstants(device))
    resident.load(lambda digest: constants[digest].tobytes())
    return resident


def scaling(**changes):
    vector = {"dtype": "f4", "shape": [8]}
    arguments = [{"in": "x"}, {"inout": "y"}, {"literal": "alpha"}, {"u1": 3}]
    return {
        "form": "opencl",
        "programs": {"p": {"source": SCALE}},
        "buffers": {"x": {"kind": "input", **vector}, "y": {"kind": "output", **vector}},
        "literals": {"alpha": {"dtype": "f4", "default": 2}},
        "kernels": [{"program": "p", "entry": "scale", "grid": [2], "block": [4], "arguments": arguments}],
    } | changes


def test_a_chain_of_products_is_numpys_and_moves_what_the_counters_say(device):
    document, constants = gemm_chain(size=64)
    resident = resident_of(document, device, constants)
    x = np.random.default_rng(1).standard_normal((64, 64), np.float32)
    expected = x
    for link in range(4):
        expected = expected @ constants[document["buffers"][f"w{link}"]["sha256"]]
    cold, warm = (resident.run({"x": x.tobytes()}, {}) for _ in range(2))
    for result in (cold, warm):
        np.testing.assert_allclose(np.frombuffer(result.outputs["y"], np.float32).reshape(64, 64), expected, 1e-3)
    assert cold.counters == count_run(resident.graph)
    assert warm.counters == count_run(resident.graph, constants=set(constants), compiled={("p", "gemm")})


def test_an_output_that_stays_is_an_input_without_a_copy_to_the_device(device):
    document, constants = gemm_chain(size=16)
    resident = resident_of(document, device, constants)
    x = np.random.default_rng(1).standard_normal((16, 16), np.float32)
    plain = resident.run({"x": x.tobytes()}, {}).outputs["y"]
    known = {"constants": set(constants), "compiled": {("p", "gemm")}}
    staying = resident.run({"x": x.tobytes()}, {}, kept=["y"])
    assert (staying.outputs, list(staying.kept)) == ({}, ["y"])
    assert staying.counters == count_run(resident.graph, **known, kept_outputs={"y"})
    place = Region(staying.kept["y"], 0, len(plain))
    assert device.read(place) == plain
    found = resident.run({"x": place}, {})
    assert found.counters == count_run(resident.graph, **known, inputs={"x"})
    assert (found.counters.misses, found.counters.hits, found.counters.bytes_in) == (4, 12, 0)
    assert found.outputs["y"] == resident.run({"x": plain}, {}).outputs["y"]


def test_graphs_share_one_arena_which_is_freed_with_the_last_of_them(device):
    class Counted:
        """The device, with the memory that is allocated there."""

        def __init__(self):
            self.sizes = []

        def __getattr__(self, name):
            return getattr(device, name)

        def allocate(self, size_bytes):
            self.sizes.append(size_bytes)
            return device.allocate(size_bytes)

        def free(self, memory):
            self.sizes.remove(memory.size_bytes)
            device.free(memory)

    counted = Counted()
    arena, x = DeviceArena(counted), np.arange(8, dtype="f4")
    small, large = scaling(), scaling()
    large["buffers"] = {name: one | {"shape": [4096]} for name, one in large["buffers"].items()}
    graphs = [ResidentGraph(graph_of(one), counted, DeviceConstants(counted), arena=arena) for one in (small, large)]
    for resident in graphs:
        resident.load({}.__getitem__)
    for _ in range(2):
        result = graphs[0].run({"x": x.tobytes()}, {"alpha": 2})
        np.testing.assert_array_equal(np.frombuffer(result.outputs["y"], "f4"), 2 * x + 3)
        graphs[1].run({"x": bytes(4 * 4096)}, {"alpha": 2})
    assert counted.sizes == [graphs[1].plan.run_bytes]
    graphs[1].unload()
    assert counted.sizes
    graphs[0].unload()
    assert counted.sizes == []


def test_graphs_with_equal_constants_share_them(device):
    document, constants = gemm_chain(size=16)
    shared, x = DeviceConstants(device), bytes(16 * 16 * 4)
    first = resident_of(document, device, constants, shared)
    second = resident_of(document | {"iterations": 2}, device, {}, shared)  # nothing is fetched for it
    assert second.run({"x": x}, {}).counters.bytes_in == len(x)
    first.unload()
    assert all(digest in shared for digest in constants)
    second.unload()
    assert not any(digest in shared for digest in constants)


def test_a_solver_stops_by_itself(device):
    n, vector = 64, {"dtype": "f4", "shape": [64]}
    sweep = {"program": "p", "entry": "sweep", "grid": [4], "block": [16]}
    measured = [{"in": "x"}, {"in": "y"}, {"out": "r"}, {"local": 64}, {"i4": n}]
    document = {
        "form": "opencl",
        "programs": {"p": {"source": JACOBI}},
        "buffers": {
            "b": {"kind": "input", **vector},
            "x": {"kind": "output", **vector},
            "y": {"kind": "temporary", **vector},
            "r": {"kind": "output", "dtype": "f4", "shape": []},
        },
        "kernels": [
            sweep | {"arguments": [{"in": "b"}, {"in": "x"}, {"out": "y"}]},
            sweep | {"arguments": [{"in": "b"}, {"in": "y"}, {"out": "x"}]},
            {"program": "p", "entry": "residual", "grid": [1], "block": [16], "arguments": measured},
        ],
        "iterations": 100_000,
        "until": {"buffer": "r", "below": 1e-5, "every": 5},
    }
    b = np.arange(n, dtype=np.float32)
    result = resident_of(document, device).run({"b": b.tobytes()}, {})
    matrix = 4 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    np.testing.assert_allclose(np.frombuffer(result.outputs["x"], np.float32), np.linalg.solve(matrix, b), rtol=1e-4)
    assert result.counters.iterations % 5 == 0
    assert 0 < result.counters.iterations < 100


def test_outputs_are_zeroed_before_each_call_and_literals_are_set_by_it(device):
    resident = resident_of(scaling(iterations=3), device)
    x = np.arange(8, dtype=np.float32)
    for _ in range(2):
        result = resident.run({"x": x.tobytes()}, {"alpha": 0.5}, iterations=2)
        np.testing.assert_array_equal(np.frombuffer(result.outputs["y"], np.float32), 2 * (0.5 * x + 3))


def test_progress_tells_the_iteration_and_the_kernel(device):
    seen = []
    resident_of(scaling(iterations=2), device).run(
        {"x": bytes(32)}, {"alpha": 1}, progress=lambda *place: seen.append(place)
    )
    assert seen == [(0, 0), (1, 0)]


def test_a_program_that_does_not_compile_shows_the_compilers_words(device):
    with pytest.raises(BuildFailed) as failed:
        resident_of(
            scaling(programs={"p": {"source": "__kernel void scale(__global float *x) { x[0] = oops; }"}}), device
        )
    assert "oops" in failed.value.log


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([{"in": "x"}, {"out": "y"}], "kernels[0] scale: has 2 arguments; the kernel takes 4"),
        (
            [{"out": "y"}, {"in": "x"}, {"literal": "alpha"}, {"u1": 3}],
            "kernels[0] scale, argument 0 'y': is written; the kernel's pointer is const",
        ),
        (
            [{"in": "x"}, {"out": "y"}, {"literal": "alpha"}, {"i4": 3}],
            "kernels[0] scale, argument 3: is a scalar of i4; the kernel takes a scalar of type uchar",
        ),
        (
            [{"in": "x"}, {"out": "y"}, {"in": "x"}, {"u1": 3}],
            "kernels[0] scale, argument 2 'x': is a buffer; the kernel takes a scalar of type float",
        ),
        (
            [{"in": "x"}, {"out": "y"}, {"local": 64}, {"u1": 3}],
            "kernels[0] scale, argument 2: is local memory; the kernel takes a scalar of type float",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_compiled_kernel_are_refused(device, arguments, complaint):
    kernels = [{"program": "p", "entry": "scale", "grid": [2], "block": [4], "arguments": arguments}]
    with pytest.raises(GraphRefused) as refused:
        resident_of(scaling(kernels=kernels), device)
    assert str(refused.value.complaints[0]) == complaint


def test_an_unknown_kernel_is_refused_with_those_that_are_there(device):
    document = json.loads(json.dumps(scaling()).replace('"entry": "scale"', '"entry": "skale"'))
    with pytest.raises(GraphRefused, match=r"kernels\[0\] skale: program 'p' has no such kernel; it has scale"):
        resident_of(document, device)


def test_a_constant_of_another_size_is_refused(device):
    document, constants = gemm_chain(size=16)
    with pytest.raises(DeviceFailed, match=r"has 4 bytes; the graph says \d+"):
        resident_of(document, device, dict.fromkeys(constants, np.zeros(1, np.float32)))
