"""Code that runs when a module is imported: an attacker's package must harm neither the server nor a neighbour."""

import contextlib
from pathlib import Path

import psutil
import pytest
from sandboxes import strongest
from wheels import wheel

from aliquot.live.node.zygotes import MAX_TENANT_ZYGOTES
from aliquot.testing.client import to_pairs
from aliquot.testing.server import alive
from aliquot.testing.waiting import wait_until

# The modules of the attacker's package. Each attacks when it is imported, and leaves what it found in FOUND.
MODULES = {
    "quiet": "FOUND = {}",
    # Sends descriptors over every socket that it finds.
    "descriptors": """
import os, socket
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        found = socket.socket(fileno=os.dup(fd))
        for _ in range(100):
            socket.send_fds(found, [b'{"ended": 1, "status": 0}'], [os.open("/dev/null", 0)] * 4)
    except OSError:
        pass
""",
    # Looks for privileges, for other processes, and for the machine beneath its own mounts.
    "privileges": """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(call, *args):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno(), "?") if call(*args) < 0 else "done"
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
FOUND = {
    "status": {name: value.strip() for name, value in status.items()},
    "umount /proc": attempt(libc.umount2, b"/proc", 2),
    "mount": attempt(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None),
    "new user namespace": attempt(libc.unshare, 0x10000000),
    "new mount namespace": attempt(libc.unshare, 0x20000),
    "new pid namespace": attempt(libc.unshare, 0x20000000),
    "ptrace": attempt(libc.ptrace, 16, os.getppid(), 0, 0),
    "own namespace again": attempt(libc.setns, os.open("/proc/self/ns/user", 0), 0x10000000),
    "setuid": attempt(libc.setuid, 0),
    "kill": attempt(libc.kill, os.getppid(), 9),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "own": [os.getpid(), os.getppid()],
    "written": [],
}
for pid in {1, os.getppid()}:
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        FOUND["written"].append(pid)
    except OSError:
        pass
""",
    "memory": "FOUND = len(bytearray(b'x') * 1_300_000_000)",
    "processes": """
import os, time
FOUND = 0
try:
    for _ in range(600):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        FOUND += 1
except OSError:
    pass
""",
    # A sparse file takes no time to make. Who reads it whole needs 3 GB.
    "errors": """
import os
try:
    os.ftruncate(2, 3 << 30)
    os.lseek(2, 0, 2)
except OSError:
    pass
for _ in range(100):
    os.write(2, bytes(1_000_000))
os.write(2, b"the end\\n")
os._exit(3)
""",
    "loud": """
import os
os.register_at_fork(before=lambda: os.write(2, bytes(200_000)))
FOUND = "forked"
""",
    "scratch": """
import os, tempfile
path = tempfile.mkdtemp()
with open(os.path.join(path, "file"), "w") as file:
    file.write("kept")
try:
    with open("/tmp/big", "wb") as file:
        for _ in range(200):
            file.write(bytes(1_000_000))
    FOUND = "unlimited"
except OSError as error:
    FOUND = error.strerror
    os.unlink("/tmp/big")
""",
    "background": """
import threading
def compute():
    while True:
        pass
threading.Thread(target=compute, daemon=True).start()
FOUND = None
""",
}
CODE = """
import os, {0}
def main(args):
    return {{"found": {0}.FOUND, "scratch": os.listdir("/tmp")}}
"""
ANSWER = "def main(args):\n    return {'answer': 42}\n"
needs_confinement = pytest.mark.skipif(not strongest().confined, reason="zygotes cannot be confined here")


@pytest.fixture(scope="module")
def server_options(tmp_path_factory):
    """Options of a server whose operator has a package directory instead of a network."""
    directory = tmp_path_factory.mktemp("index") / "wheels"
    wheel(directory, "attack", "1.0", MODULES)
    for path in (directory, directory.parent):
        path.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(directory))
        yield ("--devices", "host:1")


def attack(tenants, module):
    """Call a function of the attacker's that imports a module of its package. Returns the record's response."""
    annotations = to_pairs({"requirements": ["attack"], "imports": [module]})
    tenants.attacker.deploy(module, CODE.format(module), annotations=annotations)
    return tenants.attacker.call(module, {})["response"]


def found(tenants, module):
    response = attack(tenants, module)
    assert response["success"], response
    return response["result"]


def error_of(response):
    assert not response["success"], response
    return str(response["result"]["error"])


def descriptors_of(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def test_descriptors_through_the_control_channel_are_closed_and_end_the_zygote(tenants):
    found(tenants, "quiet")
    before = descriptors_of(tenants.server)
    for _ in range(5):
        assert "was ended" in error_of(attack(tenants, "descriptors"))
    assert descriptors_of(tenants.server) < before + 20
    tenants.check_neighbour()


@needs_confinement
def test_imports_have_no_privileges_and_reach_no_other_process(tenants):
    seen = found(tenants, "privileges")["found"]
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(seen["status"][name], 16) == 0, name
    assert (seen["status"]["NoNewPrivs"], seen["status"]["Seccomp"]) == ("1", "2")
    for name in ("umount /proc", "mount", "new user namespace", "new mount namespace", "new pid namespace", "ptrace"):
        assert seen[name] == "EPERM", name
    assert seen["own namespace again"] in {"EPERM", "EINVAL"}
    assert seen["setuid"] in {"EPERM", "EINVAL"}
    assert seen["written"] == [], "the memory of a process outside"
    assert set(seen["processes"]) <= {1, *seen["own"]}, "its supervisor and itself"


@needs_confinement
@pytest.mark.skipif(not strongest().own_uid, reason="the server is not root")
def test_each_zygote_is_a_user_of_its_own(tenants):
    found(tenants, "quiet")
    tenants.check_neighbour()
    group = psutil.Process(tenants.server.process.pid)
    users = wait_until(
        lambda: _users_of_zygotes(group), lambda users: len(users) > 1, what="two zygotes that stand still"
    )
    assert len(set(users.values())) == len(users), users


def _users_of_zygotes(group):
    users = {}
    for process in group.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                users[process.pid] = process.uids().effective
    return users


def test_imports_have_bounded_memory(tenants):
    assert "exhausted the memory" in error_of(attack(tenants, "memory"))
    tenants.check_neighbour()


def test_imports_have_a_bounded_number_of_processes_and_leave_none_behind(tenants):
    before = _running(tenants.server)
    forked = found(tenants, "processes")["found"]
    assert 300 < forked <= 512
    wait_until(
        lambda: _running(tenants.server),
        lambda count: count < before + 100,  # a new zygote with its cells may be among them
        what="the end of the imports' processes",
    )


def _running(server):
    """Return the number of processes that have not ended. The zygote waits for its children when it forks again."""
    return sum(map(alive, server.descendants()))


def test_what_imports_print_costs_the_server_no_memory(tenants):
    before = _peak_kib(tenants.server)
    assert "the end" in error_of(attack(tenants, "errors"))
    assert _peak_kib(tenants.server) < before + 300_000


def test_imports_that_print_more_than_a_pipe_holds_at_each_fork_do_not_stop_it(tenants):
    assert found(tenants, "loud")["found"] == "forked"


def _peak_kib(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def test_imports_have_a_small_temporary_folder_which_sandboxes_do_not_share(tenants):
    seen = found(tenants, "scratch")
    assert seen["found"] == "No space left on device"
    assert not [name for name in seen["scratch"] if name.startswith("tmp")]


@needs_confinement
def test_imports_compute_nothing_after_they_ended(tenants):
    """The thread is not in the forked sandbox, only in the zygote."""
    found(tenants, "background")
    group = psutil.Process(tenants.server.process.pid)
    wait_until(
        lambda: _with_threads(group),
        lambda found: found and set(found.values()) == {psutil.STATUS_STOPPED},
        what="the zygote with a thread to stand still",
    )


def _with_threads(group):
    """Return the states of zygotes with more than one thread, by pid."""
    found = {}
    for process in group.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a process that prepared a sandbox has ended
            if process.num_threads() > 1 and any("zygote.py" in word for word in process.cmdline()):
                found[process.pid] = process.status()
    return found


@pytest.mark.budget("zygotes")
def test_one_tenants_profiles_leave_space_for_others(tenants):
    """A deployment starts a zygote ahead of the first call, as long as there is space."""
    before = _zygotes(tenants.server)
    for name in ("abc", "ast", "bisect", "calendar", "cmath", "colorsys", "copy", "csv", "dis", "enum", "glob", "gzip"):
        tenants.attacker.deploy(name, ANSWER, annotations=to_pairs({"imports": [name]}))
    tenants.neighbour.deploy("heap", ANSWER, annotations=to_pairs({"imports": ["heapq"]}))
    wait_until(lambda: _zygotes(tenants.server), lambda count: count > before, what="a zygote that is prepared")
    assert tenants.neighbour.result("heap", {}) == {"answer": 42}
    tenants.check_neighbour()
    assert _zygotes(tenants.server) <= before + 1 + MAX_TENANT_ZYGOTES // 2


def _zygotes(server):
    """Return the number of zygotes. The server's own children are their guards."""
    children = psutil.Process(server.process.pid).children()
    return sum(any("zygote.py" in word for word in child.cmdline()) for child in children)
