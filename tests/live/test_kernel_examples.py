"""The examples of kernel graphs compute what NumPy computes, on real PoCL and ONNX Runtime."""

import runpy
import shutil

import numpy as np
import pytest
from places import EXAMPLES

import aliquot
from aliquot.kernels import onnx
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


def loaded(name):
    return runpy.run_path(str(EXAMPLES / "kernels" / f"{name}.py"))


def test_attention_built_in_python_computes_softmax_and_values():
    example = loaded("attention")
    x = np.random.default_rng(2).standard_normal((64, 32)).astype("f4")
    assert np.allclose(example["attention"](x=x)["y"], example["attention_with_numpy"](x), atol=1e-5)


def test_the_chain_multiplies_with_each_of_its_weights():
    example = loaded("gemm_chain")
    x = np.random.default_rng(3).standard_normal((128, 128)).astype("f4")
    assert np.allclose(example["chain"](x=x)["y"], example["chain_with_numpy"](x), atol=1e-4)
    assert not np.allclose(x, example["chain_with_numpy"](x))


def test_the_image_pipeline_draws_the_edges_of_a_picture():
    example = loaded("image_pipeline")
    picture = np.random.default_rng(4).integers(0, 256, (64, 96, 3), "u1")
    for bound in (64, 100):
        drawn = example["pipeline"](picture=picture, bound=bound)["drawn"]
        assert (drawn == example["pipeline_with_numpy"](picture, bound)).mean() > 0.999  # rounding at the bound
        assert 0 < (drawn > 0).mean() < 1


def test_the_residual_network_classifies_as_numpy_does(tmp_path):
    pytest.importorskip("onnxruntime")
    example = loaded("residual_cnn")
    (tmp_path / "net.onnx").write_bytes(example["make_model"]().SerializeToString())
    network = aliquot.App("test").kernel_graph("cnn", onnx(tmp_path / "net.onnx", shapes={"image": (3, 3, 16, 16)}))
    images = np.random.default_rng(5).random((3, 3, 16, 16), np.float32)
    assert np.allclose(network(image=images)["classes"], example["classes_with_numpy"](images), atol=1e-5)
