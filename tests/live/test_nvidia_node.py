"""A real node with real sandboxes on scripted GPUs: the settings of a sandbox, swaps, and a GPU that fails."""

import os
import subprocess
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace
from nvidia_peers import FIRST, SECOND, Recorder, ScriptedNvml, compiler
from sandboxes import control_groups, play, result, strongest

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.live.device import drivers
from aliquot.live.device.drivers import DRIVERS
from aliquot.live.device.nvidia.choice import read_choice
from aliquot.live.device.nvidia.driver import NvidiaDriver
from aliquot.live.device.nvidia.nvml import GpuProcess
from aliquot.live.node.base import Status
from aliquot.live.node.sandbox_resources import tag_of

DEVICES = (DeviceSpec("cpu", "cpu", concurrency=8), DeviceSpec("nvidia-0", "nvidia"), DeviceSpec("nvidia-1", "nvidia"))
ECHO = """
import os
def main(args):
    return {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "OWN")}
"""
LOOK = """
import os
def main(args):
    written = []
    for path in args["paths"]:
        try:
            with open(path, "w") as file:
                file.write(os.environ.get("DEVICE", "cpu"))
            written.append(path)
        except OSError:
            pass
    return {"seen": os.path.exists(args["device"]), "written": written}
"""
walled = pytest.mark.skipif(not strongest().mount, reason="mount namespaces do not work here")


@pytest.fixture
def tmp_path():
    """A directory with a short name, because it holds the sockets of MPS."""
    with TemporaryDirectory(prefix="aliquot-") as name:
        yield Path(name)


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """A machine with two scripted GPUs, whose driver's commands are recorded."""

    class Machine:
        nvml = ScriptedNvml(FIRST, SECOND)
        run = Recorder()
        asked = ""
        library = None

        def make(self, tag, devices, context):
            self.driver = NvidiaDriver(
                tag, devices, read_choice(self.asked), context.data, self.nvml, self.run, self.library
            )
            return self.driver

        def play(self, scene):
            play(tmp_path, scene, devices=DEVICES, driver_options=self.asked)

    machine = Machine()
    monkeypatch.setitem(DRIVERS, "nvidia", machine.make)
    return machine


def test_the_drivers_variables_reach_the_function_and_are_not_its_to_set(gpus):
    gpus.asked = "mps"

    async def scene(rig):
        env = {"OWN": "mine", "CUDA_VISIBLE_DEVICES": "all"}
        sandbox = await rig.started(ECHO, place=("nvidia-1",), share=0.5, device_bytes=2**30, env=env)
        assert result(await rig.run(sandbox)) == {
            "CUDA_VISIBLE_DEVICES": "GPU-bbbb", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M", "OWN": "mine",
        }  # fmt: skip
        beside = await rig.started(ECHO, place=("cpu",), env={"OWN": "mine"})
        assert set(result(await rig.run(beside)).values()) == {None, "mine"}

    gpus.play(scene)


@walled
def test_a_sandbox_sees_its_devices_files_and_may_write_what_it_must_share(gpus, tmp_path):
    gpus.asked = "mps"
    device = "/dev/ptmx"  # in a GPU's place: every machine has it, and no sandbox sees it
    memory = f"/dev/shm/aliquot-test-{os.getpid()}"  # noqa: S108
    shared, other = str(tmp_path / "mps/nvidia-0/log/said"), str(tmp_path / "mps/nvidia-1/log/said")
    given = {"device": device, "paths": [memory, shared, other]}

    async def scene(rig):
        opened = gpus.driver.access(["nvidia-0"])
        for directory in opened.writable[1:]:
            os.chmod(directory, 0o777)  # noqa: PTH101, S103 - here sandboxes have user ids of their own
        gpus.driver.access = lambda _device: replace(opened, files=(device,))
        inside = await rig.started(LOOK, place=("nvidia-0",), env={"DEVICE": "nvidia-0"})
        assert result(await rig.run(inside, given)) == {"seen": True, "written": [memory, shared]}
        outside = await rig.started(LOOK, place=("cpu",))
        assert result(await rig.run(outside, given)) == {"seen": False, "written": [memory]}  # one of its own

    gpus.play(scene)
    assert Path(memory).read_text() == Path(shared).read_text() == "nvidia-0"
    Path(memory).unlink()


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
def test_under_hami_its_library_is_in_the_process_before_anything_else(gpus, tmp_path_factory):
    gpus.asked = "hami"
    gpus.library = tmp_path_factory.mktemp("hami") / "libvgpu.so"
    source = gpus.library.with_suffix(".c")
    source.write_text("int aliquot_marker(void) { return 42; }")
    subprocess.run([compiler(), "-shared", "-fPIC", "-o", gpus.library, source], check=True)
    code = "import ctypes\ndef main(args): return {'found': ctypes.CDLL(None).aliquot_marker()}"

    async def scene(rig):
        sandbox = await rig.started(code, place=("nvidia-0",))
        assert result(await rig.run(sandbox)) == {"found": 42}
        beside = await rig.started(code, place=("cpu",))
        assert "aliquot_marker" in result(await rig.run(beside))["error"]

    gpus.play(scene)


def test_swapping_takes_its_time_and_the_next_start_waits_for_it(gpus):
    gpus.asked = "swap"
    may_go = threading.Event()
    recorder = gpus.run

    def slowly(words, env, given=""):
        may_go.wait(30)
        return recorder(words, env, given)

    gpus.run = slowly

    async def scene(rig):
        first = await rig.started(ECHO, place=("nvidia-0",))
        pid = rig.node.usage()[0].pid
        gpus.nvml.running["GPU-aaaa"] = [GpuProcess(pid, 2**30)]
        rig.node.unload(first)
        rig.node.load(first)
        second = rig.launch(ECHO, place=("nvidia-0",))
        third = await rig.started(ECHO, place=("nvidia-1",))  # another device does not wait
        assert rig.heard.queue.empty()
        may_go.set()
        heard = {(await rig.next())[:2] for _ in range(2)}
        assert heard == {("loaded", first), ("started", second)}
        for sandbox in (first, second, third):
            await rig.run(sandbox)

    gpus.play(scene)
    assert [command[:3] for command in recorder.commands] == [("cuda-checkpoint", "--toggle", "--pid")] * 2


@pytest.mark.parametrize("asked", ["", "swap"])
def test_a_sandbox_that_cannot_be_swapped_out_is_ended_for_its_memory_to_come_back(gpus, asked):
    gpus.asked = asked
    gpus.nvml.silent = True

    async def scene(rig):
        sandbox = await rig.started(ECHO, place=("nvidia-0",))
        rig.node.unload(sandbox)
        what, of, outcome = await rig.next()
        assert (what, of, outcome.status) == ("lost", sandbox, Status.INTERNAL_ERROR)
        assert result(outcome) == {"error": "The sandbox could not be swapped out, and was ended."}
        await rig.started(ECHO, place=("nvidia-0",))

    gpus.play(scene)


def test_a_sandbox_that_cannot_be_swapped_in_is_ended(gpus):
    gpus.asked = "swap"

    async def scene(rig):
        sandbox = await rig.started(ECHO, place=("nvidia-0",))
        pid = rig.node.usage()[0].pid
        gpus.nvml.running["GPU-aaaa"] = [GpuProcess(pid, 2**30)]
        rig.node.unload(sandbox)
        await rig.started(ECHO, place=("nvidia-0",))  # by then it is out
        gpus.run.failing[str(pid)] = "no room"
        rig.node.load(sandbox)
        what, of, outcome = await rig.next()
        assert (what, of) == ("lost", sandbox)
        assert result(outcome) == {"error": "The sandbox could not be swapped in, and was ended."}

    gpus.play(scene)


def test_a_gpu_that_fails_takes_its_sandboxes_with_it_and_no_others(gpus, monkeypatch):
    monkeypatch.setattr(drivers, "DEVICE_CHECK_INTERVAL_S", 0.01)

    async def scene(rig):
        first = await rig.started(ECHO, place=("nvidia-0",))
        second = await rig.started(ECHO, place=("nvidia-1",))
        gpus.nvml.faults["GPU-aaaa"] = "the driver reported Xid 79"
        what, of, outcome = await rig.next()
        assert (what, of) == ("lost", first)
        assert result(outcome) == {"error": "The device nvidia-0 was lost: the driver reported Xid 79."}
        assert await rig.next() == ("device lost", "nvidia-0", "the driver reported Xid 79")
        assert [device.name for device in rig.node.devices] == ["cpu", "nvidia-1"]
        await rig.run(second)
        assert rig.heard.queue.empty()  # it is reported once

    gpus.play(scene)


def test_a_node_that_is_refused_ends_cleanly(gpus, tmp_path):
    gpus.nvml.faults["GPU-aaaa"] = "the driver reported Xid 79"

    async def never(_rig):
        raise AssertionError

    with pytest.raises(InputError, match="nvidia-0 is not fit for use"):
        gpus.play(never)
    assert not control_groups(tag_of(tmp_path))
