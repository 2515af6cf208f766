"""The nvidia driver with a scripted NVML and recorded commands: no GPU is needed, and none has run it yet."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from nvidia_peers import CONTROL, CUT, FIRST, FREE, GIB, SECOND, Recorder, ScriptedNvml
from places import DOCS

from aliquot.core.errors import InputError
from aliquot.live.device.nvidia import commands
from aliquot.live.device.nvidia.choice import read_choice
from aliquot.live.device.nvidia.commands import CommandResult
from aliquot.live.device.nvidia.driver import NvidiaDriver
from aliquot.live.device.nvidia.inventory import device_specs
from aliquot.live.device.nvidia.nvml import GpuProcess, GpuSample
from aliquot.live.device.nvidia.usage import SandboxProcesses, parent_of
from aliquot.live.device.records import DeviceAccess, DeviceUsage
from aliquot.live.device.survey import drivers_table, survey_nvidia
from aliquot.testing.waiting import wait_until

FILES = ("/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@pytest.fixture
def tmp_path():
    """A directory with a short name, because it holds the sockets of MPS."""
    with TemporaryDirectory(prefix="aliquot-") as name:
        yield Path(name)


def made(tmp_path, asked="", *, nvml=None, run=None, library=None, parents=None):
    """Return a driver with these options, its NVML, and the commands that it has run."""
    nvml = nvml or ScriptedNvml(FIRST, SECOND)
    run = run or Recorder()
    choice = read_choice(asked)
    devices = device_specs(nvml, choice, None, 100)
    processes = SandboxProcesses((parents or {}).get) if parents is not None else None
    return NvidiaDriver("tag", devices, choice, tmp_path, nvml, run, library, processes), nvml, run


def test_a_gpu_that_is_not_fit_for_use_is_refused_and_what_was_started_is_ended(tmp_path):
    nvml = ScriptedNvml(FIRST, SECOND)
    nvml.faults["GPU-bbbb"] = "the driver reported Xid 79"
    run = Recorder()
    with pytest.raises(InputError, match="nvidia-1 is not fit for use: the driver reported Xid 79"):
        made(tmp_path, "mps", nvml=nvml, run=run)
    assert run.commands == [(CONTROL, "-d"), (CONTROL, "get_server_list"), (CONTROL, "quit -t 1")]
    assert nvml.closed


# --- what a sandbox is given ------------------------------------------------------------------------------------


def test_under_mps_a_sandbox_has_its_part_of_the_processors_and_of_the_memory(tmp_path):
    driver, _, _ = made(tmp_path, "mps")
    assert driver.environment(7, ["nvidia-0"], 0.25, 3 * GIB) == {
        "CUDA_VISIBLE_DEVICES": "GPU-aaaa",
        "CUDA_MPS_PIPE_DIRECTORY": f"{tmp_path}/mps/nvidia-0/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"{tmp_path}/mps/nvidia-0/log",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3072M",
    }
    pipes = driver.environment(8, ["nvidia-1"], 0.001, 0)
    assert pipes["CUDA_MPS_PIPE_DIRECTORY"] == f"{tmp_path}/mps/nvidia-1/pipe"
    assert pipes["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "1"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in pipes  # a limit of 0 would allow no memory
    shared = ("/dev/shm", f"{tmp_path}/mps/nvidia-0/pipe", f"{tmp_path}/mps/nvidia-0/log")  # noqa: S108
    assert driver.access(["nvidia-0"]) == DeviceAccess(FILES, writable=shared)


def test_under_hami_each_sandbox_has_limits_and_a_cache_file_of_its_own(tmp_path):
    driver, _, _ = made(tmp_path, "hami", library=Path("/opt/libvgpu.so"))
    assert driver.environment(7, ["nvidia-0"], 0.3, 3 * GIB + 1) == {
        "CUDA_VISIBLE_DEVICES": "GPU-aaaa",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_LIMIT": "3073m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/tag-7.vgpu",  # noqa: S108
    }
    assert driver.environment(8, ["nvidia-0"], 0.3, 0)["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == "/tmp/tag-8.vgpu"  # noqa: S108
    assert driver.access(["nvidia-0"]) == DeviceAccess(FILES, ("/opt/libvgpu.so",), preload="/opt/libvgpu.so")


def test_under_mig_a_sandbox_sees_its_instance(tmp_path):
    driver, _, _ = made(tmp_path, "mig", nvml=ScriptedNvml(CUT))
    assert driver.environment(7, ["nvidia-2-mig-1"], 0.5, GIB) == {"CUDA_VISIBLE_DEVICES": "MIG-2"}
    assert driver.access(["nvidia-2-mig-1"]).files == ("/dev/nvidia5", *FILES[1:], "/dev/nvidia-caps")


def test_on_several_gpus_a_sandbox_sees_all_of_them(tmp_path):
    both = ["nvidia-0", "nvidia-1"]
    driver, _, _ = made(tmp_path, "timeslice")
    assert driver.environment(7, both, 1, GIB) == {"CUDA_VISIBLE_DEVICES": "GPU-aaaa,GPU-bbbb"}
    assert driver.access(both).files == ("/dev/nvidia3", "/dev/nvidia4", *FILES[1:])
    driver, _, _ = made(tmp_path, "hami", library=Path("/opt/libvgpu.so"))
    told = driver.environment(7, both, 1, GIB)
    assert (told["CUDA_VISIBLE_DEVICES"], told["CUDA_DEVICE_SM_LIMIT"]) == ("GPU-aaaa,GPU-bbbb", "100")
    driver, _, _ = made(tmp_path, "mps")  # a client of MPS has one daemon, and so one GPU
    assert driver.environment(7, both, 1, GIB) == {"CUDA_VISIBLE_DEVICES": "GPU-aaaa,GPU-bbbb"}
    assert driver.access(both) == DeviceAccess(("/dev/nvidia3", "/dev/nvidia4", *FILES[1:]))
    assert any("a function on several GPUs has them whole without MPS" in line for line in driver.enforcement.lacking)


def test_percents_are_whole_and_nobody_gets_less_than_it_asked_for(tmp_path):
    driver, _, _ = made(tmp_path, "mps")
    given = [driver.environment(1, ["nvidia-0"], share, 0)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for share in SHARES]
    assert given == ["1", "7", "13", "29", "57", "100"]


SHARES = (0.01, 0.07, 0.125, 0.29, 0.57, 1)


def test_time_slicing_shows_the_gpu_and_says_that_nothing_is_enforced(tmp_path):
    driver, _, run = made(tmp_path)
    assert driver.environment(7, ["nvidia-1"], 0.5, GIB) == {"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}
    assert driver.access(["nvidia-0"]) == DeviceAccess(FILES)
    assert (driver.enforcement.compute, driver.enforcement.memory) == ("not enforced", "not enforced")
    assert "nvidia:timeslice: nothing is enforced" in driver.enforcement.lacking[0]
    assert run.commands == []


@pytest.mark.parametrize("asked", ["mps", "hami"])
def test_a_slice_cannot_be_changed_while_it_is_in_use_and_it_says_so(tmp_path, asked):
    driver, _, run = made(tmp_path, asked)
    before = list(run.commands), driver.environment(1, ["nvidia-0"], 0.5, GIB)
    driver.attach(1, ["nvidia-0"], [100])
    driver.resize(1, 0.1, 0.1)
    assert (run.commands, driver.environment(1, ["nvidia-0"], 0.5, GIB)) == before
    said = " ".join(driver.enforcement.lacking)
    assert "a sandbox keeps the compute and memory it began with" in said
    assert "a function that changes it before it uses the GPU is not held to them" in said


@pytest.mark.parametrize("asked", ["mps", "hami", "mig", "timeslice"])
def test_every_mode_says_that_it_has_not_run_on_hardware(tmp_path, asked):
    driver, _, _ = made(tmp_path, asked, nvml=ScriptedNvml(CUT if asked == "mig" else FIRST))
    assert driver.enforcement.lacking[-1] == "nvidia: this driver has not yet been run on hardware"
    assert "is ended" in driver.enforcement.lacking[-2]


# --- the control daemon of MPS ----------------------------------------------------------------------------------


def test_each_gpu_has_a_control_daemon_that_ends_with_the_driver(tmp_path):
    driver, nvml, run = made(tmp_path, "mps")
    assert run.commands == [(CONTROL, "-d"), (CONTROL, "get_server_list")] * 2
    assert run.env["CUDA_VISIBLE_DEVICES"] == "GPU-bbbb"
    assert run.env["CUDA_MPS_PIPE_DIRECTORY"] == f"{tmp_path}/mps/nvidia-1/pipe"
    assert (tmp_path / "mps/nvidia-0/pipe").stat().st_mode & 0o777 == 0o700
    run.commands.clear()
    driver.close()
    assert run.commands == [(CONTROL, "quit -t 1")] * 2
    assert not (tmp_path / "mps/nvidia-0").exists()
    assert nvml.closed


def test_a_daemon_that_a_killed_server_left_is_ended_first(tmp_path):
    (tmp_path / "mps/nvidia-0/pipe").mkdir(parents=True)
    (tmp_path / "mps/nvidia-0/pipe/control").touch()
    _, _, run = made(tmp_path, "0:mps")
    assert run.commands == [(CONTROL, "quit -t 1"), (CONTROL, "-d"), (CONTROL, "get_server_list")]


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        ({"d": "no device"}, "the control daemon does not start: no device"),
        ({"get_server_list": "cannot connect"}, "the control daemon of MPS does not answer: cannot connect"),
    ],
)
def test_a_daemon_that_does_not_work_is_refused(tmp_path, failing, why):
    with pytest.raises(InputError, match="--devices: nvidia:mps: ") as refused:
        made(tmp_path, "mps", run=Recorder(**failing))
    assert why in str(refused.value)


def test_a_data_folder_with_a_name_too_long_for_sockets_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"--data: .* is too long for the sockets of MPS"):
        made(tmp_path / ("x" * 80), "mps")


def test_a_device_whose_daemon_has_died_is_not_fit_for_use(tmp_path):
    driver, _, run = made(tmp_path, "mps")
    assert driver.fault("nvidia-0") is None
    run.failing["get_server_list"] = "cannot connect"
    assert driver.fault("nvidia-0") == "the control daemon of MPS does not answer: cannot connect"


def test_a_device_with_a_fault_is_not_fit_for_use(tmp_path):
    driver, nvml, _ = made(tmp_path)
    nvml.faults["GPU-aaaa"] = "it does not answer: GPU is lost"
    assert driver.fault("nvidia-0") == "it does not answer: GPU is lost"
    assert driver.fault("nvidia-1") is None


def test_programs_are_run_by_their_words_and_what_they_say_is_kept(monkeypatch):
    code = "import os, sys; print(os.environ['SAID'], sys.stdin.read(), sys.argv[1]); sys.exit(3)"
    assert commands.run([sys.executable, "-c", code, "$HOME;"], {"SAID": "a"}, "b") == CommandResult(3, "a b $HOME;")
    assert commands.run(["/nowhere/program"], {}) == CommandResult(-1, "/nowhere/program: No such file or directory")
    monkeypatch.setattr(commands, "COMMAND_TIMEOUT_S", 0.05)
    assert (
        commands.run([sys.executable, "-c", "import time; time.sleep(60)"], {}).output == "it did not end within 0.05 s"
    )


# --- swap -------------------------------------------------------------------------------------------------------


def test_a_sandbox_is_swapped_process_by_process_and_only_its_own(tmp_path):
    driver, nvml, run = made(tmp_path, "0:swap", parents={101: 100, 200: 1})
    nvml.running["GPU-aaaa"] = [GpuProcess(101, GIB), GpuProcess(200, GIB), GpuProcess(100, GIB)]
    driver.attach(1, ["nvidia-0"], [100])
    assert driver.swap_out(1)
    nvml.running["GPU-aaaa"] = [GpuProcess(200, GIB)]  # it no longer uses the GPU
    assert driver.swap_in(1)
    toggles = [("cuda-checkpoint", "--toggle", "--pid", pid) for pid in ("101", "100")]
    assert run.commands == toggles * 2
    assert driver.host_bytes(GIB) == GIB  # where its memory goes
    driver.swap_in(1)
    assert run.commands == toggles * 2


def test_a_swap_that_fails_is_said_to_have_failed(tmp_path):
    driver, nvml, run = made(tmp_path, "swap", parents={}, run=Recorder(**{"100": "unified memory"}))
    nvml.running["GPU-aaaa"] = [GpuProcess(100, GIB)]
    driver.attach(1, ["nvidia-0"], [100])
    assert not driver.swap_out(1)
    assert not driver.swap_in(1)
    nvml.silent = True
    assert not driver.swap_out(1)
    driver.detach(1)
    assert driver.swap_in(1)  # nothing is left to bring back
    assert len(run.commands) == 2


def test_without_swap_nothing_can_leave(tmp_path):
    driver, _, run = made(tmp_path)
    driver.attach(1, ["nvidia-0"], [100])
    assert not driver.swap_out(1)
    assert not driver.swap_in(1)
    assert run.commands == []
    assert driver.host_bytes(GIB) == 0


# --- usage ------------------------------------------------------------------------------------------------------


def test_samples_and_memory_are_added_up_for_the_sandbox_whose_process_it_is(tmp_path):
    driver, nvml, _ = made(tmp_path, parents={11: 10, 300: 1})
    driver.attach(1, ["nvidia-0"], [10])
    driver.attach(2, ["nvidia-0"], [20])
    driver.attach(3, ["nvidia-1"], [30])
    nvml.running["GPU-aaaa"] = [GpuProcess(10, 1), GpuProcess(11, 2), GpuProcess(20, 4), GpuProcess(300, 8)]
    nvml.sampled["GPU-aaaa"] = [GpuSample(10, 1_000_000, 0.5), GpuSample(20, 1_000_000, 0.5)]
    driver.meters.look()
    assert driver.usage() == [DeviceUsage(1, 0, 3), DeviceUsage(2, 0, 4), DeviceUsage(3, 0, 0)]
    nvml.sampled["GPU-aaaa"] += [
        GpuSample(11, 1_200_000, 0.5), GpuSample(10, 1_200_000, 0.25), GpuSample(20, 1_400_000, 1),
        GpuSample(300, 1_400_000, 1),
    ]  # fmt: skip
    driver.meters.look()
    driver.meters.look()  # samples are counted once
    assert driver.usage() == [
        DeviceUsage(1, pytest.approx(0.15), 3),
        DeviceUsage(2, pytest.approx(0.4), 4),
        DeviceUsage(3, 0, 0),
    ]
    driver.detach(1)
    assert [used.sandbox for used in driver.usage()] == [2, 3]


def test_usage_of_several_gpus_is_added_up(tmp_path):
    driver, nvml, _ = made(tmp_path, parents={})
    driver.attach(1, ["nvidia-0", "nvidia-1"], [10])
    for uuid, busy in (("GPU-aaaa", 1.0), ("GPU-bbbb", 0.5)):
        nvml.running[uuid] = [GpuProcess(10, 4)]
        nvml.sampled[uuid] = [GpuSample(10, 1_000_000, busy), GpuSample(10, 1_400_000, busy)]
    driver.meters.look()
    assert driver.usage() == [DeviceUsage(1, pytest.approx(0.3), 8)]  # the mean of both, and the memory of both
    assert driver.meters.pids_on_device(1) == [10]
    driver.detach(1)
    assert driver.usage() == []


def test_a_gpu_that_does_not_tell_keeps_what_it_told_last(tmp_path):
    driver, nvml, _ = made(tmp_path, "0", parents={})
    driver.attach(1, ["nvidia-0"], [10])
    nvml.running["GPU-aaaa"] = [GpuProcess(10, 5)]
    driver.meters.look()
    nvml.silent = True
    driver.meters.look()
    assert driver.usage() == [DeviceUsage(1, 0, 5)]


def test_nvml_is_asked_in_a_thread_that_ends_with_the_driver(tmp_path, monkeypatch):
    monkeypatch.setattr("aliquot.live.device.nvidia.usage.NVML_INTERVAL_S", 0.001)
    driver, nvml, _ = made(tmp_path, "0", parents={})
    driver.attach(1, ["nvidia-0"], [10])
    driver.meters.start()
    nvml.running["GPU-aaaa"] = [GpuProcess(10, 5)]
    wait_until(driver.usage, lambda usage: usage == [DeviceUsage(1, 0, 5)], what="the thread's first measurement")
    driver.close()
    assert not driver.meters._thread.is_alive()


def test_a_child_is_its_parents_sandbox():
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    processes = SandboxProcesses()
    processes.add(9, [os.getpid()])
    assert processes.sandbox_of(child.pid) == 9
    processes.remove(9)
    assert processes.sandbox_of(child.pid) is None
    child.communicate(b"\n")
    assert parent_of(child.pid) == 0


# --- what is said of it -----------------------------------------------------------------------------------------


def test_the_doctor_says_of_each_mode_what_it_enforces_or_why_it_is_refused(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    nvml = ScriptedNvml(FIRST)
    nvml.faults["GPU-aaaa"] = "the driver reported Xid 79"
    found = {standing.driver: standing for standing in survey_nvidia(nvml, FREE)}
    assert list(found) == ["nvidia GPUs", "nvidia:mps", "nvidia:hami", "nvidia:mig", "nvidia:timeslice"]
    assert (found["nvidia GPUs"].usable, found["nvidia GPUs"].lacking) == (False, "0: the driver reported Xid 79")
    assert not found["nvidia:mps"].usable
    assert "is not on the PATH" in found["nvidia:mps"].detail
    assert "compute: not enforced; memory: not enforced; swap: none" in found["nvidia:timeslice"].detail
    (none,) = survey_nvidia(ScriptedNvml(), FREE)
    assert (none.usable, none.detail) == (False, "none")


def test_the_table_of_drivers_in_the_documents_is_the_codes_own():
    page = DOCS / "reference/devices.md"
    assert drivers_table() in page.read_text()
    assert "**Not yet run on hardware.**" in page.read_text()


def test_pynvml_is_imported_only_when_a_gpu_is_asked_for():
    code = "import sys, aliquot.live.settings; sys.exit('pynvml' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
