"""`aliquot kernel`: mistakes in graphs and in their arrays say what to do."""

import json
import os
import runpy
import shutil

import numpy as np
import pytest
from command_line import run_here
from kernel_graphs import gemm_chain
from places import EXAMPLES

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")


@pytest.fixture
def kernel(tmp_path):
    np.save(tmp_path / "photo.npy", np.eye(256, dtype=np.float32))
    np.save(tmp_path / "small.npy", np.eye(8))
    (tmp_path / "blur.json").write_bytes((EXAMPLES / "kernels" / "blur.json").read_bytes())
    environment = {"POCL_CACHE_DIR": str(tmp_path), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def run(*arguments):
        return run_here("kernel", *arguments, cwd=tmp_path, environment=environment)

    return run


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "--input: input 'image' is missing; the graph has image"),
        (("-i", "photo.npy"), "--input photo.npy: expected NAME=VALUE"),
        (("-i", "photo=photo.npy"), "--input: no input 'photo'; the graph has image"),
        (("-i", "image=none.npy"), "none.npy cannot be read as an array of NumPy"),
        (("-i", "image=blur.json"), "blur.json cannot be read as an array of NumPy"),
        (("-i", "image=small.npy"), "--input image: small.npy is float64[8, 8]; expected f4[256, 256]"),
        (("-i", "image=photo.npy", "-l", "size=2"), "--literal: no literal 'size'; the graph has radius"),
        (("-i", "image=photo.npy", "-l", "radius=two"), "--literal radius: 'two' is not a number"),
        (("-i", "image=photo.npy", "--iterations", "2"), "--iterations is 2; the graph takes 1 to 1"),
    ],
)
def test_a_run_with_wrong_arrays_or_values_is_refused(kernel, arguments, error):
    result = kernel("run", "blur.json", *arguments)
    assert result.code == 2
    assert error in " ".join(result.err.split())


def test_a_constant_that_is_missing_is_named(kernel, tmp_path):
    document, _ = gemm_chain(size=16)
    (tmp_path / "chain.json").write_text(json.dumps(document))
    np.save(tmp_path / "x.npy", np.eye(16, dtype=np.float32))
    result = kernel("run", "chain.json", "-i", "x=x.npy")
    assert (result.code, "give it with --const" in " ".join(result.err.split())) == (2, True)


def test_constants_are_found_by_their_digest(kernel, tmp_path):
    document, constants = gemm_chain(size=16)
    (tmp_path / "chain.json").write_text(json.dumps(document))
    np.save(tmp_path / "x.npy", np.eye(16, dtype=np.float32))
    files = []
    for number, array in enumerate(constants.values()):
        np.save(tmp_path / f"c{number}.npy", array)
        files += ["--const", f"c{number}.npy"]
    result = kernel("run", "chain.json", "-i", "x=x.npy", *files, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["counters"]["misses"] == 13


def test_a_program_that_does_not_compile_shows_the_compilers_words(kernel, tmp_path):
    text = (tmp_path / "blur.json").read_text().replace("float sum = 0", "float sum = zero")
    (tmp_path / "blur.json").write_text(text)
    result = kernel("run", "blur.json", "-i", "image=photo.npy")
    assert result.code == 2
    assert "use of undeclared identifier 'zero'" in " ".join(result.err.split())


def test_the_memory_of_a_graph_is_shown(kernel):
    shown = kernel("show", "blur.json").out
    assert "512 KiB while it runs" in shown
    assert json.loads(kernel("show", "blur.json", "--json").out)["run_bytes"] == 2 * 256 * 256 * 4


def test_a_graph_that_names_a_model_alone_asks_for_its_file(kernel, tmp_path):
    (tmp_path / "model.json").write_text(json.dumps({"form": "onnx", "model": {"sha256": "0" * 64}}))
    assert "model: names a model by its digest; give the model itself" in kernel("check", "model.json").out


def test_a_model_is_checked_shown_and_run_with_the_shapes_that_it_leaves_open(tmp_path, kernel):
    example = runpy.run_path(str(EXAMPLES / "kernels" / "residual_cnn.py"))
    (tmp_path / "net.onnx").write_bytes(example["make_model"]().SerializeToString())
    np.save(tmp_path / "image.npy", np.ones((2, 3, 16, 16), "f4"))
    refused = kernel("check", "net.onnx")
    assert "shapes.image: its shape in the model is [batch, 3, 16, 16]; give it in shapes" in refused.out
    shape = ("--shape", "image=2,3,16,16")
    assert kernel("check", "net.onnx", *shape).out == "net.onnx is right\n"
    assert "1 kernel, 16 MiB of constants" in kernel("show", "net.onnx", *shape).out
    assert kernel("run", "net.onnx", *shape, "-i", "image=image.npy", "--into", "out").code == 0
    found = np.load(tmp_path / "out" / "classes.npy")
    assert np.allclose(found, example["classes_with_numpy"](np.ones((2, 3, 16, 16), "f4")), atol=1e-5)
    assert "expected NAME=SIZE,SIZE" in kernel("check", "net.onnx", "--shape", "image=x").err
