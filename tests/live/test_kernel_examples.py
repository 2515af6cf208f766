"""The examples of kernel graphs compute what NumPy computes, on real PoCL."""

import shutil

import numpy as np
import pytest
from places import EXAMPLES

from aliquot.kernels.backends import open_backend
from aliquot.kernels.check import check_graph
from aliquot.kernels.executor.residents import DeviceConstants, ResidentGraph
from aliquot.kernels.reading import read_graph

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")
WEIGHTS = np.arange(16, dtype="f4").reshape(4, 4)


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        yield open_backend("opencl")


def run(device, name, inputs, literals=None):
    graph = read_graph((EXAMPLES / "kernels" / f"{name}.json").read_bytes())
    assert check_graph(graph) == []
    resident = ResidentGraph(graph, device, DeviceConstants(device))
    resident.load(lambda _: WEIGHTS.tobytes())
    result = resident.run({key: array.tobytes() for key, array in inputs.items()}, literals or {})
    arrays = {key: np.frombuffer(data, "f4").reshape(graph.buffers[key].shape) for key, data in result.outputs.items()}
    return arrays, result.counters


def test_the_blur_averages_both_ways(device):
    image = np.random.default_rng(1).random((256, 256), np.float32)
    outputs, _ = run(device, "blur", {"image": image}, {"radius": 2})
    near = [range(max(0, i - 2), min(256, i + 3)) for i in range(256)]
    rows = np.array([image[:, list(window)].mean(axis=1) for window in near]).T
    expected = np.array([rows[list(window)].mean(axis=0) for window in near])
    assert np.allclose(outputs["blurred"], expected, atol=1e-5)


def test_the_affine_map_multiplies_with_its_constant(device):
    x = np.array([1, 2, 3, 4], "f4")
    assert np.allclose(run(device, "affine", {"x": x})[0]["y"], x @ WEIGHTS)


def test_the_solver_stops_by_itself_at_the_solution(device):
    matrix = 2 * np.eye(32) - np.eye(32, k=1) - np.eye(32, k=-1)
    b = np.linspace(0, 0.01, 32, dtype="f4")
    outputs, counters = run(device, "jacobi", {"b": b})
    assert np.allclose(outputs["u"], np.linalg.solve(matrix, b), rtol=0.01)
    assert counters.iterations % 50 == 0
    assert counters.iterations < 20_000
