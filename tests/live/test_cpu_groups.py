"""Sandboxes enter the CPU group of their tenant themselves, and the server checks that they have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxes import play, result

from aliquot.live.device.slices.base import ROOT
from aliquot.live.device.tenant_cpu import TenantCpu
from aliquot.live.node.sandbox_resources import tag_of
from aliquot.testing.waiting import wait_on_loop

CPU_TREE = ROOT / "cpu"
pytestmark = pytest.mark.skipif(
    not (os.access(CPU_TREE, os.W_OK) and (CPU_TREE / "cpu.shares").exists()), reason="no CPU groups of version 1"
)
# The groups of the process when its code is loaded.
GROUPS_CODE = """
loaded = open("/proc/self/cgroup").read()
def main(args):
    return {"loaded": loaded}
"""
TWO_THREADS_CODE = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("started", flush=True)
time.sleep(600)
"""


def cpu_group(text: str) -> str:
    return next(line.split(":", 2)[2] for line in text.splitlines() if line.split(":")[1] == "cpu")


@pytest.fixture
def tenants(tmp_path):
    groups = TenantCpu(tag_of(tmp_path))
    yield groups
    groups.close()


@pytest.fixture
def two_threads():
    process = subprocess.Popen([sys.executable, "-c", TWO_THREADS_CODE], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"started\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("settings", [{}, {"sdk": True}], ids=["plain", "with a control channel"])
def test_a_function_is_in_the_group_of_its_tenant_when_its_code_is_loaded(tmp_path, settings):
    async def scene(rig):
        sandbox = await rig.started(GROUPS_CODE, **settings)
        payload = {} if not settings else {"args": {}}
        loaded = result(await rig.run(sandbox, payload))["loaded"]
        assert cpu_group(loaded).endswith(f"/tenants/{group_name()}/{sandbox}")

    def group_name() -> str:
        return TenantCpu(tag_of(tmp_path))._group("guest").name

    play(tmp_path, scene)


def test_a_sandbox_that_does_not_enter_its_group_is_moved_there(tmp_path, monkeypatch):
    async def scene(rig):
        monkeypatch.setattr(rig.node._drivers, "open_group", lambda _: os.open(os.devnull, os.O_WRONLY))
        await rig.started(GROUPS_CODE)
        pid = rig.node.usage()[0].pid
        await wait_on_loop(
            lambda: cpu_group(Path(f"/proc/{pid}/cgroup").read_text()),
            lambda group: "/tenants/" in group,
            what="the sandbox to be moved",
        )

    play(tmp_path, scene)


def test_a_process_with_one_thread_elsewhere_is_moved_whole(tenants, two_threads):
    group = Path(f"/proc/self/fd/{tenants.open_group(1, 'guest')}").resolve().parent
    (group / "tasks").write_text(str(two_threads.pid))  # its first thread alone
    threads = {each.name for each in Path(f"/proc/{two_threads.pid}/task").iterdir()}
    assert set((group / "tasks").read_text().split()) == {str(two_threads.pid)} < threads
    tenants.attach(1, "guest", [two_threads.pid])
    assert set((group / "tasks").read_text().split()) == threads
