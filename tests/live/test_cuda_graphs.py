"""The cuda backend on a scripted driver library, which is built here. It has not yet run on hardware."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from aliquot.kernels.backends import BackendMissing, open_backend
from aliquot.kernels.backends.base import BuildFailed, DeviceFailed, DeviceLost, Region
from aliquot.kernels.backends.cuda import CudaBackend
from aliquot.kernels.backends.cuda_library import entries_of
from aliquot.kernels.counters import count_run
from aliquot.kernels.executor.residents import DeviceConstants, ResidentGraph
from aliquot.kernels.reading import GraphRefused, read_graph

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the scripted library is built with cc")
SCRIPT = Path(__file__).parent.parent / "support" / "scripted_cuda.c"
PTX = b""".version 7.0
.target sm_70
.visible .entry scale(.param .u64 x) { ret; }
.visible .entry dims(.param .u64 y) { ret; }
.entry trap() { ret; }
"""
DIGEST = hashlib.sha256(PTX).hexdigest()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, SCRIPT], check=True)
    return str(path)


@pytest.fixture
def device(library):
    return CudaBackend.open(0, library)


def graph(kernels, buffers, **more):
    document = {"form": "cuda", "programs": {"p": {"sha256": DIGEST}}, "buffers": buffers, "kernels": kernels, **more}
    return read_graph(json.dumps(document))


def launch(entry, arguments, grid=(2,), block=(4,)):
    return {"program": "p", "entry": entry, "grid": list(grid), "block": list(block), "arguments": arguments}


VECTOR = {"dtype": "f4", "shape": [8]}
SCALE = [launch("scale", [{"in": "x"}, {"inout": "y"}, {"literal": "alpha"}, {"u1": 3}])]
BUFFERS = {"x": {"kind": "input", **VECTOR}, "y": {"kind": "output", **VECTOR}}
LITERALS = {"alpha": {"dtype": "f4", "default": 2}}


def resident_of(made, device, file=PTX):
    return ResidentGraph(made, device, DeviceConstants(device), {DIGEST: file})


def test_a_graph_runs_with_zeroed_outputs_scalars_and_counters(device):
    resident = resident_of(graph(SCALE, BUFFERS, literals=LITERALS, iterations=2), device)
    x = np.arange(8, dtype="f4")
    for _ in range(2):
        result = resident.run({"x": x.tobytes()}, {"alpha": 0.5})
        np.testing.assert_array_equal(np.frombuffer(result.outputs["y"], "f4"), 2 * (0.5 * x + 3))
    assert result.counters == count_run(resident.graph, compiled={("p", "scale")})
    assert device.limits.device == "scripted GPU 0"


def test_an_output_stays_on_the_device(device):
    resident = resident_of(graph(SCALE, BUFFERS, literals=LITERALS), device)
    kept = resident.run({"x": np.ones(8, "f4").tobytes()}, {"alpha": 1}, kept=["y"]).kept["y"]
    result = resident.run({"x": Region(kept, 0, 32)}, {"alpha": 1})
    assert np.frombuffer(result.outputs["y"], "f4").tolist() == [7.0] * 8
    assert result.counters.bytes_in == 0
    device.free(kept)


def test_a_launch_has_three_dimensions_and_the_local_memory_of_all_arguments(device):
    arguments = [{"local": 64}, {"out": "y"}, {"local": 128}]
    made = graph([launch("dims", arguments, (5, 3), (4, 2))], {"y": {"kind": "output", "dtype": "u4", "shape": [7]}})
    outputs = resident_of(made, device).run({}, {}).outputs
    assert np.frombuffer(outputs["y"], "u4").tolist() == [5, 3, 1, 4, 2, 1, 192]


def test_another_thread_uses_a_stream_and_the_context_of_its_own(device):
    seen = []

    def load():
        stream = device.with_own_queue()
        memory = stream.allocate(16)
        stream.load(Region(memory, 0, 16), memoryview(b"0123456789abcdef"))
        seen.append(stream.read(Region(memory, 4, 4)))

    thread = Thread(target=load)
    thread.start()
    thread.join()
    assert seen == [b"4567"]


def test_mistakes_of_the_user_and_failures_of_the_device_are_told(device, library):
    with pytest.raises(BuildFailed) as failed:
        resident_of(graph(SCALE, BUFFERS, literals=LITERALS), device, b"no program")
    assert failed.value.log == "ptxas fatal : expected .version"
    unknown = [SCALE[0] | {"entry": "other"}]
    with pytest.raises(GraphRefused, match="no such kernel; it has scale, dims, trap"):
        resident_of(graph(unknown, BUFFERS, literals=LITERALS), device)
    with pytest.raises(DeviceFailed, match="no memory of 100000000 bytes on scripted GPU 0"):
        device.allocate(100_000_000)
    with pytest.raises(DeviceFailed, match="there is no CUDA device 3; there are 1"):
        CudaBackend.open(3, library)


def test_an_illegal_address_loses_the_device(library, tmp_path):
    own = tmp_path / "libcuda.so.1"  # a library of its own, whose device is lost for good
    shutil.copy(library, own)
    device = CudaBackend.open(0, str(own))
    trap = graph([launch("trap", [{"inout": "y"}])], {"y": {"kind": "output", **VECTOR}})
    with pytest.raises(DeviceLost, match=r"CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
        resident_of(trap, device).run({}, {})


def test_the_kernels_of_a_cubin_are_its_sections():
    assert entries_of(b"\x7fELF....\0.text.gemm\0.nv.info.gemm\0.text._Z3addPf\0") == ("gemm", "_Z3addPf")


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a driver")
def test_a_machine_without_a_driver_says_what_is_missing():
    with pytest.raises(BackendMissing, match="NVIDIA's driver library"):
        open_backend("cuda")
