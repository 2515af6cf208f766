"""NVML through the real `pynvml`, with a small library in C in NVIDIA's place."""

import json
import os
import subprocess
import sys

import pytest
from nvidia_peers import build_library, compiler

from aliquot.testing.server import LiveServer

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")

ASK = """
import json, msgspec
from aliquot.live.device.nvidia.pynvml_adapter import open_nvml
nvml = open_nvml()
found = [nvml.driver_version(), nvml.gpus(), nvml.processes("GPU-0"), nvml.samples("GPU-0", 1_000_000),
         nvml.samples("GPU-1", 0), nvml.processes("GPU-1"), *map(nvml.fault, ("GPU-0", "GPU-1", "GPU-1"))]
nvml.close()
print(json.dumps(msgspec.to_builtins(found)))
"""
SHOWN = """
import os
def main(args):
    return {key: value for key, value in os.environ.items() if key.startswith(("CUDA", "ALIQUOT_DEVICE"))}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return {**os.environ, "LD_LIBRARY_PATH": str(build_library(tmp_path_factory.mktemp("nvml")))}


def ask(library, **said):
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**library, **said}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_inventory_processes_and_samples_are_read(library):
    version, gpus, processes, samples, *others = ask(library, FAKE_PID="77")
    assert version == "570.86.10"
    assert [
        (gpu["index"], gpu["uuid"], gpu["model"], gpu["memory_bytes"], gpu["minor"], gpu["mig"]) for gpu in gpus
    ] == [
        (0, "GPU-0", "Fake 0", 8 << 30, 5, False),
        (1, "GPU-1", "Fake 1", 9 << 30, 6, False),
    ]
    assert processes == [{"pid": 77, "memory_bytes": 1 << 30}]
    assert samples == [{"pid": 77, "at_us": 2_000_000, "busy": 0.75}]
    assert others == [[], [], None, None, None]


@pytest.mark.parametrize(
    ("said", "first", "second"),
    [
        ({"FAKE_XID": "79"}, None, "the driver reported Xid 79"),
        ({"FAKE_XID": "13"}, None, None),  # a program's own fault
        ({"FAKE_ECC": "2"}, *["its memory has had 2 errors that could not be corrected"] * 2),
    ],
)
def test_what_is_wrong_with_a_gpu_is_told_and_stays_so(library, said, first, second):
    assert ask(library, **said)[6:] == [first, second, second]


def test_a_lost_gpu_is_a_fault_and_its_processes_an_error(library):
    code = "from aliquot.live.device.nvidia.pynvml_adapter import open_nvml; nvml = open_nvml()"
    code += "; print(nvml.fault('GPU-0')); nvml.processes('GPU-0')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**library, "FAKE_LOST": "1"}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "it does not answer: GPU is lost\n"
    assert "NvmlError: the processes on GPU-0 cannot be listed: GPU is lost" in done.stderr


def test_a_function_sees_its_gpu_and_no_other(library, tmp_path):
    with LiveServer(tmp_path / "data", "--devices", "nvidia:1", env=library) as server, server.client() as client:
        server.deploy("shown", SHOWN, annotations=[{"key": "gpu-share", "value": 0.5}])
        answer = client.post("actions/shown", params={"blocking": "true", "result": "true"}, json={})
        assert answer.json() == {"CUDA_VISIBLE_DEVICES": "GPU-1", "ALIQUOT_DEVICE": "nvidia-1"}
        assert "nvidia:timeslice: nothing is enforced" in server.log.read_text()


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ("nvidia:7", "there is no GPU 7; there are 0, 1"),
        ("nvidia:hami", "there is no /usr/local/vgpu/libvgpu.so"),
        ("nvidia:mps", "`nvidia-cuda-mps-control` is not on the PATH"),
        ("nvidia:mig", "GPU 0 does not have MIG switched on"),
        ("nvidia:swap", "`cuda-checkpoint` is not on the PATH"),
    ],
)
def test_the_server_does_not_start_with_what_cannot_be(library, tmp_path, devices, why):
    with pytest.raises(RuntimeError, match="the server did not come up") as raised:
        LiveServer(tmp_path / "data", "--devices", devices, env=library).start()
    said = " ".join(str(raised.value).split())
    assert why in said
    assert "Traceback" not in said


def test_the_doctor_tells_of_each_way_of_sharing(library, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "aliquot", "doctor", "--json", "--data", str(tmp_path)],
        env=library, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert found["nvidia GPUs"]["detail"] == "0: Fake 0, 8 GiB, 1: Fake 1, 9 GiB"
    assert not found["nvidia:timeslice"]["ok"]
    assert "nothing is enforced" in found["nvidia:timeslice"]["consequence"]
    assert "PATH" in found["nvidia:mps"]["detail"]
