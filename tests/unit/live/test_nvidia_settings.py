"""Options for NVIDIA's GPUs: those that are understood, and those that are refused."""

import subprocess
import sys

import pytest
from nvidia_peers import CONTROL, CUT, FIRST, FREE, GIB, SECOND, ScriptedNvml

from aliquot.core.errors import InputError
from aliquot.core.fit import misfit
from aliquot.core.model import DeviceSpec, FunctionSpec
from aliquot.live.device.base import DriverContext
from aliquot.live.device.nvidia.checks import check_choice, find_library
from aliquot.live.device.nvidia.choice import NvidiaChoice, SharingMode, read_choice
from aliquot.live.device.nvidia.inventory import device_specs
from aliquot.live.settings import parse_devices


def found(name):
    return f"/usr/bin/{name}"


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("", NvidiaChoice()),
        ("0,1", NvidiaChoice((0, 1))),
        ("mps", NvidiaChoice(mode=SharingMode.MPS)),
        ("1:hami:swap", NvidiaChoice((1,), SharingMode.HAMI, swap=True)),
        ("mig:2", NvidiaChoice((2,), SharingMode.MIG)),
    ],
)
def test_gpus_mode_and_swap_are_read_in_any_order(text, choice):
    assert read_choice(text) == choice


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nvidia:fast", "'fast' of 'nvidia:fast' is not understood; it takes nvidia, all GPUs"),
        ("nvidia:0:1", "'1' of 'nvidia:0:1' is not understood"),
        ("nvidia:0,", "'0,' of 'nvidia:0,' is not understood"),
        ("nvidia:mps:mig", "says a thing twice"),
        ("nvidia:0,0", "says a thing twice"),
        ("amd:1", "'amd:1' is not understood; it takes host:N, N virtual devices on this machine, or nvidia, all GPUs"),
        ("host", "'host' is not understood"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_the_option_takes(text, why):
    with pytest.raises(InputError, match="--devices: ") as refused:
        parse_devices(text, None, 100, None, lambda: ScriptedNvml(FIRST))
    assert why in str(refused.value)


def test_each_gpu_is_a_device_beside_the_cpu():
    nvml = ScriptedNvml(FIRST, SECOND)
    cpu, *gpus = parse_devices("nvidia:1", "8GiB", 10, None, lambda: nvml)
    assert cpu.name == "cpu"
    assert gpus == [DeviceSpec("nvidia-1", "nvidia", 8 * GIB, 10)]
    assert nvml.closed


def test_each_instance_of_mig_is_a_device_on_which_one_runs_at_a_time():
    nvml = ScriptedNvml(FIRST, CUT)
    assert device_specs(nvml, read_choice("2:mig"), None, 100) == [
        DeviceSpec("nvidia-2-mig-0", "nvidia", 20 * GIB, 1, alone=True),
        DeviceSpec("nvidia-2-mig-1", "nvidia", 40 * GIB, 1, alone=True),
    ]
    text = misfit(FunctionSpec("two", share=2), device_specs(nvml, read_choice("2:mig"), None, 100))
    assert "nvidia-2-mig-0: a sandbox on it cannot use a second device" in text
    assert text.endswith(f"the largest that would fit is a share of 1 with {40 * GIB} bytes")


@pytest.mark.parametrize(
    ("gpus", "asked", "memory", "why"),
    [
        ([], "", None, "this machine's driver knows no GPU"),
        ([FIRST], "0,4", None, "there is no GPU 4; there are 0"),
        ([CUT], "mps", None, "nvidia:mps: GPU 2 is cut into instances by MIG; take nvidia:mig"),
        ([FIRST], "mig", None, "GPU 0 does not have MIG switched on"),
        ([FIRST], "", "25GiB", "--device-memory: nvidia-0 has 25769803776 bytes; more could only be unified memory"),
    ],
)
def test_gpus_that_cannot_be_had_so_are_refused(gpus, asked, memory, why):
    with pytest.raises(InputError) as refused:
        parse_devices(f"nvidia:{asked}" if asked else "nvidia", memory, 100, None, lambda: ScriptedNvml(*gpus))
    assert why in str(refused.value)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InputError, match=r"--devices: nvidia: .* pip install 'aliquot\[nvidia\]'"):
        parse_devices("nvidia", None, 100, None)


def test_without_nvidias_library_it_says_so():
    code = "from aliquot.live.device.nvidia.pynvml_adapter import open_nvml; open_nvml()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"LD_LIBRARY_PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        pytest.skip("this machine has NVML")
    assert "NvmlError: NVML does not start: " in done.stderr


@pytest.mark.parametrize(
    ("asked", "around", "missing", "version", "machine", "why"),
    [
        ("mps", DriverContext(own_uid=True, own_root=True), (), "570", "x86_64", "MPS serves one user id at a time"),
        ("mps", FREE, (CONTROL,), "570", "x86_64", f"`{CONTROL}` is not on the PATH"),
        ("mps:swap", FREE, (), "570", "x86_64", "cuda-checkpoint is not known to take processes that compute through"),
        ("hami", DriverContext(), (), "570", "x86_64", "HAMi-core keeps files in /tmp"),
        ("hami:swap", FREE, ("cuda-checkpoint",), "570", "x86_64", "`cuda-checkpoint` is not on the PATH"),
        ("swap", FREE, (), "545.23.08", "x86_64", "cuda-checkpoint needs driver 550 or newer, and this is 545.23.08"),
        ("swap", FREE, (), "570.86.10", "aarch64", "cuda-checkpoint is for x86-64 alone, and this is aarch64"),
    ],
)
def test_what_cannot_go_together_is_refused(asked, around, missing, version, machine, why):
    nvml = ScriptedNvml(FIRST, version=version)
    with pytest.raises(InputError, match="--devices: nvidia:") as refused:
        check_choice(
            read_choice(asked), around, nvml, which=lambda name: None if name in missing else found(name),
            machine=machine,
        )  # fmt: skip
    assert why in str(refused.value)


@pytest.mark.parametrize("asked", ["mps", "hami", "mig", "timeslice", "hami:swap", "swap"])
def test_what_goes_together_is_not_refused(asked):
    check_choice(read_choice(asked), FREE, ScriptedNvml(FIRST, version="550.54.15"), which=found, machine="x86_64")


def test_hamis_library_must_be_there(tmp_path):
    with pytest.raises(InputError, match="name it in ALIQUOT_HAMI_LIBRARY"):
        find_library({"ALIQUOT_HAMI_LIBRARY": str(tmp_path / "libvgpu.so")})
    (tmp_path / "libvgpu.so").touch()
    assert find_library({"ALIQUOT_HAMI_LIBRARY": str(tmp_path / "libvgpu.so")}) == tmp_path / "libvgpu.so"


def test_only_virtual_devices_take_a_bandwidth():
    found = parse_devices("host:2", "1GiB", 2, 8, bandwidth="256MiB")
    assert [device.bandwidth_bytes_s for device in found] == [None, 256 * 2**20, 256 * 2**20]
    for devices, bandwidth in (("nvidia", "1GiB"), ("host:1", "0")):
        with pytest.raises(InputError, match="--device-bandwidth"):
            parse_devices(devices, None, 2, 8, bandwidth=bandwidth)
