"""CPU groups of tenants and of processes that serve all: really with version 1, and on a tree that plays version 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.live.device import cgroup_files, service_cpu, tenant_cpu
from aliquot.live.device.service_cpu import ServiceCpu
from aliquot.live.device.tenant_cpu import TenantCpu
from aliquot.testing.waiting import wait_until

V1 = Path("/sys/fs/cgroup/cpu")


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.fixture
def version_2(tmp_path, monkeypatch):
    """A tree with the files that the kernel would make. It stands for a machine with version 2 alone."""
    groups = ("", "app", "app/tag", "app/tag/tenants", "app/tag/services")
    for group in (tmp_path / name for name in groups):
        group.mkdir(exist_ok=True)
        (group / "cgroup.controllers").write_text("cpu memory pids")
        (group / "cgroup.subtree_control").write_text("")
    (own := tmp_path / "own").write_text("0::/app\n")
    monkeypatch.setattr(cgroup_files, "_SELF", own)
    for module in (cgroup_files, tenant_cpu, service_cpu):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path / "app" / "tag"


@pytest.mark.skipif(not os.access(V1, os.W_OK), reason="no control groups of version 1")
def test_groups_of_version_1_have_weights_and_are_gone_afterwards(sleeper):
    tag = f"aliquot-test-{os.getpid()}"
    tenants, services = TenantCpu(tag), ServiceCpu(tag)
    tenants.set_weight("heavy", 3)
    assert tenants.attach(1, "heavy", [sleeper.pid]) is None, "memory has a tree of its own"
    (group,) = (V1 / tag / "tenants").glob("*/")
    assert (group / "cpu.shares").read_text() == "3072\n"
    assert (group / "1" / "cgroup.procs").read_text() == f"{sleeper.pid}\n"
    services.place("storage", sleeper.pid)
    assert (V1 / tag / "services" / "storage" / "cgroup.procs").read_text() == f"{sleeper.pid}\n"
    tenants.detach(1)
    assert not group.exists()
    sleeper.kill()
    sleeper.wait()
    tenants.close()
    services.close()
    assert not (V1 / tag).exists()


def test_a_group_whose_processes_end_late_is_removed_later(sleeper):
    if not os.access(V1, os.W_OK):
        pytest.skip("no control groups of version 1")
    tenants = TenantCpu(f"aliquot-test-{os.getpid()}")
    tenants.attach(1, "tenant", [sleeper.pid])
    (group,) = (V1 / f"aliquot-test-{os.getpid()}" / "tenants").glob("*/")
    tenants.detach(1)
    assert group.exists(), "its process runs"
    sleeper.kill()
    sleeper.wait()
    tenants.attach(2, "other", [])
    tenants.detach(2)
    wait_until(lambda: not group.exists(), what="the removal of the group that was left")
    tenants.close()


def test_groups_of_version_2_are_written_as_the_kernel_documents_them(version_2, sleeper):
    tenants, services = TenantCpu("tag"), ServiceCpu("tag")
    assert tenants.why_not == ""
    tenants.set_weight("heavy", 3)
    name = tenant_cpu._tenant_name("heavy")
    (version_2 / "tenants" / name).mkdir()
    (version_2 / "tenants" / name / "cgroup.subtree_control").write_text("")
    directory = tenants.attach(1, "heavy", [sleeper.pid])
    assert directory == version_2 / "tenants" / name / "1", "which is the group for memory and processes from now on"
    assert (directory / "cgroup.procs").read_text() == str(sleeper.pid)
    tenants.set_weight("heavy", 5)
    assert (directory.parent / "cpu.weight").read_text() == "500"
    services.place("relay", 124)
    assert (version_2 / "services" / "cpu.weight").read_text() == "400"
    assert (version_2 / "services" / "cgroup.subtree_control").read_text() == "+cpu"
    assert (version_2 / "services" / "relay" / "cgroup.procs").read_text() == "124"


def test_without_control_groups_it_says_so_and_does_nothing(tmp_path, monkeypatch):
    for module in (cgroup_files, tenant_cpu, service_cpu):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    tenants = TenantCpu("tag")
    assert tenants.why_not == f"{tmp_path}: no controller cpu"
    assert tenants.attach(1, "tenant", [1]) is None
    ServiceCpu("tag").place("relay", 1)
    assert list(tmp_path.iterdir()) == []
