"""The isolation of sandboxes: they cannot see, read, write, signal or trace what is not their own."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from places import SUPPORT
from sandboxes import NO_ISOLATION, isolation, play, result, strongest

from aliquot.live.node.isolation import Isolation, probe
from aliquot.runtime.isolation import visible_paths
from aliquot.testing.waiting import wait_on_loop

RELAY = "aliquot.live.node.network.process"
# Runs a snippet that leaves its finding in `found`.
RUN = "def main(args):\n    space = {'args': args}\n    exec(args['code'], space)\n    return {'found': space['found']}"


def ask(tmp_path, code, *, env=None, isolation=None, **args):
    """Run a snippet in a sandbox and return its finding."""
    found = []

    async def scene(rig):
        sandbox = await rig.started(RUN, env=env or {})
        outcome = await rig.run(sandbox, {"code": code, **args})
        found.append(result(outcome).get("found", outcome))

    play(tmp_path / "data", scene, isolation=isolation or strongest())
    return found[0]


needs_mounts = pytest.mark.skipif(not strongest().mount, reason="no mount namespaces here")
needs_pids = pytest.mark.skipif(not strongest().pid, reason="no pid namespaces here")

TRY_TO_READ = """
try:
    found = open(args['path']).read()
except OSError as error:
    found = type(error).__name__
"""
WITHOUT_MOUNTS = Isolation(landlock=strongest().landlock, seccomp=strongest().seccomp)


@pytest.mark.parametrize("walls", [strongest(), WITHOUT_MOUNTS], ids=["all", "landlock_alone"])
def test_the_servers_data_cannot_be_read(tmp_path, walls):
    if not (walls.mount or walls.landlock):
        pytest.skip("neither mount namespaces nor Landlock here")
    secret = tmp_path / "data" / "keys"
    secret.parent.mkdir()
    secret.write_text("secret")
    secret.chmod(0o644)
    beside = tmp_path / "beside"
    beside.write_text("another's")
    for path in (secret, beside, Path.home() / ".bashrc"):
        assert ask(tmp_path, TRY_TO_READ, path=str(path), isolation=walls) in {"FileNotFoundError", "PermissionError"}
    assert "root:" in ask(tmp_path, TRY_TO_READ, path="/etc/passwd", isolation=walls)
    assert ask(tmp_path, TRY_TO_READ, path=str(secret), isolation=NO_ISOLATION) == "secret", "or this tests nothing"


def components(above, *more):
    """Return the names in this directory through which a sandbox reaches its interpreter, and `more`, if below it."""
    needed = [Path(path) for path in (*visible_paths([]), *more)]
    return sorted({path.relative_to(above).parts[0] for path in needed if path.is_relative_to(above)})


def in_tmp(data):
    """Return what a new sandbox has in /tmp: the ways to its interpreter and to the environment of its kind."""
    return components("/tmp", data)  # noqa: S108


@needs_mounts
def test_the_root_holds_the_system_and_nothing_else(tmp_path):
    found = ask(tmp_path, "import os; found = sorted(os.listdir('/'))")
    assert set(found) <= {
        *("bin", "dev", "etc", "lib", "lib32", "lib64", "nix", "proc", "sbin", "sys", "tmp", "usr"),
        *components("/", tmp_path),
    }
    assert ask(tmp_path, "import os; found = sorted(os.listdir('/tmp'))") == in_tmp(tmp_path)


@needs_mounts
def test_directories_above_the_interpreter_show_nothing_but_the_way_to_it(tmp_path):
    code = """
import os
found = {}
for path in args['paths']:
    try:
        found[path] = sorted(os.listdir(path))
    except OSError as error:
        found[path] = type(error).__name__
"""
    above = [str(path) for path in Path(sys.prefix).parents if not path.is_relative_to("/usr")][:-1]
    found = ask(tmp_path, code, paths=above)
    for path, shown in found.items():
        if strongest().own_uid and not Path(path).is_relative_to("/tmp"):  # noqa: S108
            assert shown == "PermissionError", path
        else:  # it runs as the user who made them
            assert set(shown) <= set(components(path, tmp_path)), path


def test_only_the_scratch_directory_can_be_written(tmp_path):
    code = """
import os, sys
found = []
for path in (os.environ['TMPDIR'], '/', '/usr', '/etc', os.path.dirname(os.__file__), sys.prefix, '/dev', '/var/tmp'):
    try:
        open(os.path.join(path, 'written'), 'w').close()
        found.append(path)
    except OSError:
        pass
"""
    found = ask(tmp_path, code)
    assert len(found) == 1
    assert found[0].startswith(("/tmp", str(tmp_path)))  # noqa: S108


def test_scratch_is_each_sandboxs_own_and_new(tmp_path):
    write = "import os; open(os.environ['TMPDIR'] + '/mine', 'w').write('x'); found = os.listdir(os.environ['TMPDIR'])"
    look = """
import glob, os
found = [sorted(os.listdir(os.environ['TMPDIR'])), glob.glob(args['scratch'] + '/*/*') + glob.glob('/tmp/mine')]
"""

    async def scene(rig):
        first, second = await rig.started(RUN), await rig.started(RUN)
        assert sorted(result(await rig.run(first, {"code": write}))["found"]) == sorted(["mine", *in_tmp(tmp_path)])
        found = result(await rig.run(second, {"code": look, "scratch": str(tmp_path / "scratch")}))["found"]
        assert found == [in_tmp(tmp_path), []]

    play(tmp_path, scene)


@needs_mounts
def test_scratch_is_bounded(tmp_path):
    code = """
import errno
try:
    with open('/tmp/big', 'wb') as file:
        for _ in range(100):
            file.write(bytes(1_000_000))
    found = 'all of it'
except OSError as error:
    found = errno.errorcode[error.errno]
"""
    found = []

    async def scene(rig):
        found.append(result(await rig.run(await rig.started(RUN), {"code": code}))["found"])

    play(tmp_path, scene, scratch_bytes=10_000_000)
    assert found[0] in {"ENOSPC", "EFBIG"}


def test_nothing_is_inherited_but_its_own_descriptors_and_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVER_SECRET", "key")
    descriptor = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        code = "import os; found = [dict(os.environ), sorted(map(int, os.listdir('/proc/self/fd')))]"
        variables, descriptors = ask(tmp_path, code, env={"GIVEN": "1"})
    finally:
        os.close(descriptor)
    assert set(variables) == {"PATH", "HOME", "LANG", "TMPDIR", "GIVEN"}
    # Three streams, the server, the tokens of runs handed ahead, the listed directory, and copies of two streams.
    assert descriptors == [0, 1, 2, 3, 4, 5, 100, 101]


@needs_pids
def test_other_processes_are_neither_seen_nor_reached(tmp_path):
    code = """
import os, signal
found = [sorted(int(name) for name in os.listdir('/proc') if name.isdigit()), os.getpid(), os.getppid()]
try:
    os.kill(args['server'], signal.SIGKILL)
    found.append('killed')
except OSError as error:
    found.append(type(error).__name__)
"""
    seen, own, parent, killed = ask(tmp_path, code, server=os.getpid())
    assert (seen, own, parent) == ([1], 1, 0)
    assert killed in {"ProcessLookupError", "PermissionError"}


def test_landlock_alone_keeps_from_signalling_others(tmp_path):
    if not strongest().landlock or subprocess.run(["true"], check=False).returncode:
        pytest.skip("no Landlock here")
    code = """
import os, signal
try:
    os.kill(args['server'], 0)
    found = 'reached'
except OSError as error:
    found = type(error).__name__
"""
    found = ask(tmp_path, code, server=os.getpid(), isolation=Isolation(landlock=True, seccomp=True))
    if found == "reached":
        pytest.skip("this kernel's Landlock has no scopes for signals")
    assert found == "PermissionError"


DENIED = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name, call in {
    'unshare': lambda: libc.unshare(0x10000000),
    'mount': lambda: libc.mount(b'none', b'/tmp', b'tmpfs', 0, None),
    'ptrace': lambda: libc.ptrace(16, args['server'], 0, 0),
    'setns': lambda: libc.setns(0, 0x40000000),  # which its zygote may call
    'chroot': lambda: libc.chroot(b'/tmp'),
    'sethostname': lambda: libc.sethostname(b'x', 1),
    'setuid': lambda: libc.setuid(0),
    'keyctl': lambda: libc.syscall(250, 0, -3, 0, 0, 0),
    'bpf': lambda: libc.syscall(321, 0, 0, 0),
    'io_uring': lambda: libc.syscall(425, 1, 0),
    'userfaultfd': lambda: libc.syscall(323, 0),
}.items():
    ctypes.set_errno(0)
    found[name] = errno.errorcode.get(ctypes.get_errno()) if call() < 0 else 'done'
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers in the snippet are x86_64's")
@pytest.mark.skipif(not strongest().seccomp, reason="no seccomp here")
@pytest.mark.parametrize("confined", [True, False], ids=["confined", "privileged_zygote"])
def test_privileged_calls_are_denied(tmp_path, confined):
    found = ask(tmp_path, DENIED, server=os.getpid(), isolation=_with_zygotes(confined=confined))
    as_root = found.pop("setuid")
    assert not strongest().own_uid or as_root in {"EPERM", "EINVAL"}, "root does not exist there"
    assert set(found.values()) == {"EPERM"}, found


def _with_zygotes(*, confined):
    return replace(strongest(), confined=confined and strongest().confined)


STATUS = "found = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)"


@pytest.mark.parametrize("confined", [True, False], ids=["confined", "privileged_zygote"])
def test_there_are_no_privileges_and_no_way_to_any(tmp_path, confined):
    status = ask(tmp_path, STATUS, isolation=_with_zygotes(confined=confined))
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"].strip() == "1"


@pytest.mark.skipif(not strongest().own_uid, reason="the server is not root")
def test_each_sandbox_is_a_user_of_its_own_and_never_root(tmp_path):
    users = []

    async def scene(rig):
        for _ in range(2):
            await rig.started(RUN)
        # A zygote may report its fork after the sandbox has replied.
        await wait_on_loop(lambda: len(rig.node.usage()) == 2, what="the pids of both sandboxes")
        users.extend(os.stat(f"/proc/{usage.pid}").st_uid for usage in rig.node.usage())  # noqa: PTH116

    play(tmp_path, scene)
    assert len(set(users)) == 2
    assert min(users) > 1_000_000_000


@pytest.mark.skipif(not (strongest().user and strongest().own_uid), reason="the server is not root")
def test_what_a_zygote_imports_is_not_run_as_root(tmp_path):
    """A module that a tenant's requirements bring is a stranger, too."""
    import psutil

    earlier = psutil.Process().children(recursive=True)  # of other tests of this process

    async def scene(rig):
        await rig.started(RUN)
        users = {}
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                # These run no code of tenants: the relay, and the script that thaws groups.
                if child not in earlier and RELAY not in child.cmdline() and child.name() != "sh":
                    users[child.pid] = child.uids()
        assert users
        assert not [pid for pid, uids in users.items() if 0 in uids]

    play(tmp_path, scene)


STILL_WORKS = """
import json, multiprocessing, os, socket, subprocess, threading, tempfile, sqlite3, ctypes, ssl, concurrent.futures
found = {}
found['subprocess'] = subprocess.run(['sh', '-c', 'echo hello | tr a-z A-Z'], capture_output=True, text=True).stdout
thread = threading.Thread(target=lambda: found.__setitem__('thread', 'ran'))
thread.start(); thread.join()
with multiprocessing.get_context('fork').Pool(2) as pool:
    found['pool'] = pool.map(abs, [-1, -2])
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
client.sendall(b'over loopback')
found['socket'] = server.accept()[0].recv(100).decode()
with tempfile.NamedTemporaryFile() as file:
    found['file'] = os.path.exists(file.name)
database = sqlite3.connect(os.environ['TMPDIR'] + '/db')
found['sqlite'] = database.execute('select 1').fetchone()[0]
with concurrent.futures.ThreadPoolExecutor(4) as executor:
    found['executor'] = list(executor.map(abs, [-3]))
lock = multiprocessing.Lock()
found['cpus'] = os.cpu_count() > 0
open('/dev/null', 'w').write('x')
found['random'] = len(open('/dev/urandom', 'rb').read(4))
"""


@pytest.mark.parametrize("walls", [True, False], ids=["walls", "no_walls"])
def test_ordinary_things_still_work(tmp_path, walls):
    assert ask(tmp_path, STILL_WORKS, isolation=isolation(walls)) == {
        "subprocess": "HELLO\n",
        "thread": "ran",
        "pool": [1, 2],
        "socket": "over loopback",
        "file": True,
        "sqlite": 1,
        "executor": [3],
        "cpus": True,
        "random": 4,
    }


def test_the_probe_finds_reasons_or_none():
    found = probe(Path("/nowhere"))
    assert all(isinstance(getattr(found, name), str) for name in found.__struct_fields__)


UNPRIVILEGED = """
import sys
sys.path[:0] = [{here!r}, {source!r}, {packages!r}]
from contextlib import suppress
from pathlib import Path
import uvloop
from sandboxes import node, result, strongest, RUNAWAY_CODE

READ = "def main(args):\\n    return {{'text': open(args['path']).read()}}"
HOG = "def main(args):\\n    held = [bytes(10_000_000) + b'x' for _ in range(100)]\\n    return {{}}"

async def main():
    walls = strongest()
    data = Path(sys.argv[1]) / "data"
    data.mkdir()
    (data / "keys").write_text("secret")
    async with node(data) as rig:
        sandbox = await rig.started(READ)
        print(result(await rig.run(sandbox, {{"path": str(data / "keys")}})))
        print(result(await rig.run(sandbox, {{"path": "/etc/hostname"}})).keys())
        print(result(await rig.run_and_lose(await rig.started(HOG))))
        print(walls.user, walls.mount, walls.pid, walls.own_uid, walls.landlock, walls.seccomp)

uvloop.run(main())
"""


def others_reach(path):
    """Return whether other users may enter all directories above a file."""
    return all(parent.stat().st_mode & 1 for parent in path.resolve().parents)


@pytest.mark.skipif(os.geteuid() != 0, reason="it is what the other tests do without root")
def test_a_server_without_root_isolates_too():
    """The server runs as `nobody`, with the system's Python if other users cannot reach this one."""
    import aliquot

    if not others_reach(Path(aliquot.__file__)):
        pytest.skip("this clone is in a closed directory")
    python = Path(sys.base_prefix, "bin", "python3")
    if not others_reach(python):
        python = Path("/usr/bin/python3")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        found = subprocess.run([python, "--version"], capture_output=True, text=True, check=False).stdout
        if not found.startswith(f"Python {version}."):
            pytest.skip(f"this Python is in a closed directory, and {python} is another")
    import uvloop

    script = UNPRIVILEGED.format(
        here=str(SUPPORT),
        source=str(Path(aliquot.__file__).parent.parent),
        packages=str(Path(uvloop.__file__).parent.parent),
    )
    home = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    os.chown(home, 65534, 65534)
    try:
        done = subprocess.run(
            [python, "-I", "-c", script, str(home)],
            user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False, cwd="/", env={},
        )  # fmt: skip
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    assert lines[0].startswith("{'error': \"[Errno"), "it has read the server's key"
    assert lines[1] == "dict_keys(['text'])"
    assert lines[2] == "{'error': 'The action exhausted its memory and was aborted.'}"
