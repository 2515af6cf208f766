"""The mount of another pid namespace's /proc, on new kernels and on old ones."""

import subprocess
import sys

import pytest
from msgspec.structs import replace
from sandboxes import play, result, strongest

SCRIPT = """
import os, sys
from aliquot.runtime import confinement, isolation, linux

def not_there(namespace):
    raise OSError("as before Linux 6.17")

if sys.argv[1] == "old":
    linux.detached_proc = not_there
mine = os.getuid(), os.getgid()
linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID)
isolation.map_own_user(*mine)
linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
reader, writer = os.pipe()
first = os.fork()
if first == 0:
    os.close(writer)
    os.read(reader, 1)  # until the parent has ended
    os._exit(0)
confinement.mount_processes(os.open(f"/proc/{first}/ns/pid", os.O_RDONLY))
print(sorted(name for name in os.listdir("/proc") if name.isdigit()))
"""


@pytest.mark.skipif(not strongest().confined, reason="zygotes cannot be confined here")
@pytest.mark.parametrize("kernel", ["new", "old"])
def test_the_processes_of_another_namespace_are_mounted(kernel):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kernel], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "['1']\n", done.stderr


STREAMS = """
import sys
def main(args):
    streams = [[each.isatty(), each.seekable(), each.fileno(), each.encoding] for each in (sys.stdout, sys.stderr)]
    return {"streams": streams, "same": sys.__stdout__ is sys.stdout, "input": sys.stdin.read()}
"""


@pytest.mark.parametrize("confined", [True, False], ids=["confined", "privileged_zygote"])
def test_standard_streams_are_those_of_pipes(tmp_path, confined):
    found = []

    async def scene(rig):
        found.append(result(await rig.run(await rig.started(STREAMS), {})))

    play(tmp_path / "data", scene, isolation=replace(strongest(), confined=confined and strongest().confined))
    pipes = [[False, False, 1, "utf-8"], [False, False, 2, "utf-8"]]
    assert found == [{"streams": pipes, "same": True, "input": ""}]
