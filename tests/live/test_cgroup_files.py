"""Version 2 of control groups: really, on a hierarchy without controllers, and on a tree that plays the kernel."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aliquot.core.model import DeviceSpec
from aliquot.live.device import cgroup_files
from aliquot.live.device import slices as ways
from aliquot.live.device.cgroup_files import CgroupTree, Freezer, claim_tree, kill_all, pids_in, release_tree
from aliquot.live.device.host import HostDriver
from aliquot.live.device.slices.cgroups_v2 import CgroupV2Enforcer
from aliquot.live.node import cgroups
from aliquot.live.node.cgroups import NodeCgroups
from aliquot.testing.waiting import wait_until

LOOP = "while True: pass"
DEVICES = [DeviceSpec("host-1", "host"), DeviceSpec("host-2", "host")]
# The files of a group that are used here.
FILES = ("cgroup.procs", "cgroup.subtree_control", "cgroup.freeze", "cgroup.kill")
CONTROLLED = (
    *("cpu.weight", "cpu.max", "cpuset.cpus", "memory.max", "memory.swap.max", "memory.events", "memory.current"),
    *("pids.max", "cpu.stat"),
)


@pytest.fixture
def hierarchy(tmp_path):
    """A real hierarchy without controllers: groups, processes, freezing, killing, and counted compute."""
    if subprocess.run(["mount", "-t", "cgroup2", "none", str(tmp_path)], check=False).returncode:
        pytest.skip("version 2 cannot be mounted here")
    yield tmp_path
    for directory in sorted(tmp_path.glob("aliquot-test-*/**/"), reverse=True):
        kill_all(directory)
        wait_until(lambda d=directory: pids_in(d), lambda pids: not pids, what=f"the processes in {directory} to end")
        directory.rmdir()
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture
def loops():
    processes = []

    def start(count):
        processes.extend(subprocess.Popen([sys.executable, "-S", "-c", LOOP]) for _ in range(count))
        return processes

    yield start
    for process in processes:
        process.kill()
        process.wait()


def played(root, *groups, controllers="cpuset cpu memory pids", own="/app"):
    """Make a tree with the files that the kernel would make in these groups. Writing to them has no effect."""
    for group in ("", own.strip("/"), *groups):
        directory = root / group
        directory.mkdir(parents=True, exist_ok=True)
        for name in (*FILES, *CONTROLLED):
            (directory / name).write_text("usage_usec 3000000\n" if name == "cpu.stat" else "")
        (directory / "cgroup.controllers").write_text(controllers)
    return root


def said(directory):
    """Return the settings written to this group."""
    names = ("cpu.weight", "cpu.max", "cpuset.cpus", "memory.max", "pids.max", "cgroup.procs")
    return {name: text for name in names if (text := (directory / name).read_text())}


# --- the kernel's own ---------------------------------------------------------------------------------------


def test_a_part_is_really_frozen_counted_and_left(hierarchy, loops):
    (process,) = loops(1)
    tree = claim_tree(f"aliquot-test-{os.getpid()}", hierarchy, "/")
    driver = HostDriver("", DEVICES, sorted(os.sched_getaffinity(0)), CgroupV2Enforcer(tree))
    directory = driver.attach(7, ["host-1"], [process.pid])
    assert directory == tree.path / "host-1" / "7"
    assert pids_in(directory) == [process.pid]
    assert len(os.sched_getaffinity(process.pid)) == 1  # there is no cpuset here
    wait_until(lambda: driver.usage()[0].compute_s, what="the loop to use the processor")
    freezer = Freezer.of_version_2(directory)
    freezer.freeze()
    wait_until((directory / "cgroup.events").read_text, lambda text: "frozen 1" in text, what="the group to be frozen")
    still = driver.usage()[0].compute_s
    time.sleep(0.1)
    assert driver.usage()[0].compute_s == still
    freezer.thaw()
    wait_until(lambda: driver.usage()[0].compute_s, lambda used: used > still, what="the loop to go on")
    assert driver.enforcement.compute == "not enforced"  # it is, as long as there is no controller for it
    process.kill()
    process.wait()
    driver.detach(7)
    driver.close()
    assert list(hierarchy.glob("aliquot-test-*")) == []


def test_a_group_that_is_removed_while_it_is_thawed_is_no_error(hierarchy, monkeypatch):
    (group := hierarchy / f"aliquot-test-{os.getpid()}").mkdir()
    opened = os.open

    def open_before_the_end(*arguments):
        fd = opened(*arguments)
        group.rmdir()
        return fd

    monkeypatch.setattr(os, "open", open_before_the_end)
    Freezer.of_version_2(group).thaw()
    assert not group.exists()


def test_what_a_killed_server_left_frozen_is_ended_with_all_it_forks(hierarchy, monkeypatch):
    monkeypatch.setattr(cgroups, "_ROOT", hierarchy)
    tree = claim_tree(f"aliquot-test-{os.getpid()}", hierarchy, "/")
    forks = subprocess.Popen(
        [
            sys.executable,
            "-S",
            "-c",
            "import os\nos.read(0, 1)\nos.fork()\nos.fork()\nwhile True: os.waitpid(os.fork() or os._exit(0), 0)",
        ],
        stdin=subprocess.PIPE,
    )
    driver = HostDriver("", DEVICES, [0], CgroupV2Enforcer(tree))
    directory = driver.attach(1, ["host-1"], [forks.pid])
    (directory / "cgroup.procs").write_text(str(forks.pid))
    with forks.stdin as begin:  # only now: a fork made outside of the group would stay outside
        begin.write(b"x")
    wait_until(lambda: pids_in(directory), lambda pids: len(pids) >= 4, what="the forks in the group")
    Freezer.of_version_2(directory).freeze()
    cgroups._remove(tree.path)
    driver.close()
    assert forks.wait() == -signal.SIGKILL
    assert not tree.path.exists()


def test_where_no_controller_is_to_be_had_it_says_so_and_leaves_nothing(hierarchy, monkeypatch):
    monkeypatch.setattr(cgroups, "_ROOT", hierarchy)
    monkeypatch.setattr(cgroup_files, "ROOT", hierarchy)
    monkeypatch.setattr(cgroup_files, "_SELF", hierarchy / "nothing")
    (own := hierarchy.parent / f"{hierarchy.name}-own").write_text("0::/\n")
    monkeypatch.setattr(cgroup_files, "_SELF", own)
    groups = NodeCgroups(f"aliquot-test-{os.getpid()}")
    assert groups.version == 0
    assert groups.why_not == f"{hierarchy} has no controller memory, pids"
    with pytest.raises(OSError, match="no controller cpu"):
        CgroupV2Enforcer.claim(f"aliquot-test-{os.getpid()}")
    assert list(hierarchy.glob("aliquot-test-*")) == []


def test_a_group_that_passes_controllers_on_has_no_processes_so_the_server_steps_aside_and_comes_back(hierarchy):
    """The check runs in a process of its own, which plays the server."""
    if "hugetlb" not in (hierarchy / "cgroup.controllers").read_text():
        pytest.skip("no controller at all")
    own = f"aliquot-test-{os.getpid()}"
    script = f"""
import os
from pathlib import Path
from aliquot.live.device import cgroup_files
from aliquot.live.device.cgroup_files import pids_in
cgroup_files.WANTED = ("hugetlb",)
root = Path({str(hierarchy)!r})
(root / "cgroup.subtree_control").write_text("+hugetlb")
home = root / {own!r}
home.mkdir()
(home / "cgroup.procs").write_text("0")
tree = cgroup_files.claim_tree("tag", root, "/{own}")
print(tree.path.relative_to(root), pids_in(home) == [], pids_in(home / "tag-server") == [os.getpid()])
again = cgroup_files.claim_tree("tag", root, "/{own}/tag-server")
print(again == tree, (tree.path / "cgroup.subtree_control").read_text().strip())
cgroup_files.release_tree(tree)
print(pids_in(home) == [os.getpid()], [path.name for path in home.iterdir() if path.is_dir()])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    (hierarchy / own).rmdir()
    (hierarchy / "cgroup.subtree_control").write_text("-hugetlb")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{own}/tag True True", "True hugetlb", "True []"]


def test_a_server_among_other_processes_is_told_to_start_in_a_group_of_its_own(hierarchy, loops, monkeypatch):
    if "hugetlb" not in (hierarchy / "cgroup.controllers").read_text():
        pytest.skip("no controller at all")
    monkeypatch.setattr(cgroup_files, "WANTED", ("hugetlb",))
    (process,) = loops(1)
    (hierarchy / "cgroup.subtree_control").write_text("+hugetlb")
    home = hierarchy / f"aliquot-test-{os.getpid()}"
    home.mkdir()
    (home / "cgroup.procs").write_text(str(process.pid))
    with pytest.raises(OSError, match="start it in one of its own, as with systemd-run"):
        claim_tree("tag", hierarchy, f"/{home.name}")
    process.kill()
    process.wait()
    home.rmdir()
    (hierarchy / "cgroup.subtree_control").write_text("-hugetlb")


# --- a tree that plays the kernel's part --------------------------------------------------------------------


def test_what_is_bounded_of_a_sandbox_is_written_as_the_kernel_documents_it(tmp_path):
    root = played(
        tmp_path, "app/tag", "app/tag/host-1", "app/tag/host-1/7", "app/tag/host-1,host-2", "app/tag/host-1,host-2/8"
    )
    tree = claim_tree("tag", root, "/app")
    assert tree == CgroupTree(root / "app" / "tag", ("cpu", "cpuset", "memory", "pids"))
    wanted = "+cpu +cpuset +memory +pids"
    assert [(directory / "cgroup.subtree_control").read_text() for directory in (root / "app", tree.path)] == [
        wanted
    ] * 2
    driver = HostDriver("", DEVICES, [0, 1], CgroupV2Enforcer(tree))
    assert driver.enforcement.compute == "weight and quota (cgroups v2)"
    assert "not yet run with its controllers" in driver.enforcement.lacking[0]
    driver.resize(7, 0.25, 0.5)
    directory = driver.attach(7, ["host-1"], [123])
    assert said(directory) == {"cpu.weight": "2500", "cpu.max": "10000 20000", "cgroup.procs": "123"}
    device = directory.parent
    assert said(device) == {"cpu.weight": "400", "cpuset.cpus": "1"}
    assert (device / "cgroup.subtree_control").read_text() == wanted
    driver.resize(7, 0.01, 0.01)
    assert said(directory)["cpu.max"] == "1000 100000"  # no less than the kernel takes
    driver.resize(7, 1, 1)
    assert (said(directory)["cpu.weight"], said(directory)["cpu.max"]) == ("10000", "max 20000")
    assert [used.compute_s for used in driver.usage()] == [3]
    both = driver.attach(8, ["host-1", "host-2"], [124])
    assert said(both.parent)["cpuset.cpus"] == "0,1"
    assert [used.compute_s for used in driver.usage()] == [3, 1.5]  # on average of both


def test_more_devices_than_cores_are_bounded_as_a_whole(tmp_path):
    root = played(tmp_path, "app/tag", "app/tag/host-1", "app/tag/host-1/1")
    driver = HostDriver("", DEVICES, [3], CgroupV2Enforcer(claim_tree("tag", root, "/app")))
    driver.attach(1, ["host-1"], [1])
    assert said(root / "app/tag/host-1") == {"cpu.weight": "400", "cpu.max": "10000 20000", "cpuset.cpus": "3"}


def test_memory_and_processes_are_bounded_where_the_sandbox_is_and_follow_it(tmp_path, monkeypatch):
    root = played(tmp_path, "app/tag", "app/tag/5", "app/tag/host-1", "app/tag/host-1/7")
    monkeypatch.setattr(cgroups, "_ROOT", root)
    (own := tmp_path / "own").write_text("0::/app\n")
    monkeypatch.setattr(cgroup_files, "_SELF", own)
    groups = NodeCgroups("tag")
    assert groups.version == 2
    group = groups.make(5, 64)
    group.limit_memory(1 << 20)
    assert said(root / "app/tag/5") == {"memory.max": str(1 << 20), "pids.max": "64"}
    assert (root / "app/tag/5/memory.swap.max").read_text() == "0"
    moved = root / "app/tag/host-1/7"
    (moved / "memory.current").write_text("4096")
    (moved / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n")
    group.move(moved)
    assert said(moved) == {"memory.max": str(1 << 20), "pids.max": "64"}
    assert (group.used_bytes(), group.ran_out_of_memory()) == (4096, False)
    (moved / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n")
    assert group.ran_out_of_memory()
    assert group.usage == moved / "memory.current"
    assert group.set_frozen(frozen=True)
    assert (moved / "cgroup.freeze").read_text() == "1"
    assert group.set_frozen(frozen=False)
    assert (moved / "cgroup.freeze").read_text() == "0"


def test_the_best_way_that_there_is_is_taken(tmp_path, monkeypatch):
    (own := tmp_path / "own").write_text("0::/app\n")
    root = played(tmp_path / "v2", "app/tag")
    monkeypatch.setattr(ways, "ROOT", root)
    monkeypatch.setattr(cgroup_files, "ROOT", root)
    monkeypatch.setattr(cgroup_files, "_SELF", own)
    assert ways.open_enforcer("tag").enforcement.compute == "weight and quota (cgroups v2)"
    (root / "app" / "cgroup.controllers").write_text("memory pids")
    kept = ways.open_enforcer("tag").enforcement
    assert kept.compute == "not enforced (nice, cores)"
    assert "no controller cpu" in kept.lacking[0]
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(ways, "ROOT", empty)
    monkeypatch.setattr(cgroup_files, "ROOT", empty)
    assert "no controller cpu, cpuacct, cpuset" in ways.open_enforcer("tag").enforcement.lacking[0]


def test_what_is_given_back_is_gone_and_what_is_in_use_is_not(tmp_path):
    mine = CgroupTree(tmp_path / "tag", ())
    (mine.path / "host-1").mkdir(parents=True)
    release_tree(mine)
    assert Path(mine.path, "host-1").is_dir()
