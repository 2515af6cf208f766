"""Puts up the walls around zygotes and sandboxes: every layer that the server found the machine to have.

Two steps, because what tenants have a zygote import is not to be trusted either. `enclose` takes a zygote out of the
machine before it imports anything: a root directory without other people's files, a pid namespace, and a user namespace
in which alone it keeps the privileges that the second step needs. `enter` takes each forked sandbox out of the zygote's
world, and its privileges away.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from . import landlock, linux, mounts, seccomp

_CORE_BYTES = 0
_OPEN_FILES = 4096
_OOM_SCORE = "500"  # should the machine itself run out of memory: sandboxes before the server


def visible_paths(extra: list[str]) -> list[str]:
    """What this interpreter needs to see beside the system."""
    package = str(Path(__file__).resolve().parent.parent)
    paths = {package, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *extra}
    paths |= {path for path in sys.path if os.path.isabs(path)}  # noqa: PTH117
    return sorted(path for path in paths if path != "/" and os.path.exists(path))  # noqa: PTH110


# --- around the zygote ----------------------------------------------------------------------------------------


def enclose(walls: dict[str, Any]) -> None:
    """Called once in the zygote, before its imports. With a pid namespace, it is another process that returns."""
    walls["visible"] = visible_paths(walls["visible"])
    own_mounts = linux.CLONE_NEWNS if walls["mount"] else 0
    if walls["user"] and not walls["uids"]:
        mine = os.getuid(), os.getgid()
        linux.unshare(linux.CLONE_NEWUSER | own_mounts)
        map_own_user(*mine)
    elif own_mounts:
        linux.unshare(own_mounts)
    if own_mounts:
        mounts.change_root(
            walls["visible"], walls["hidden"], walls["writable"], walls["devices"], views=walls["views"]
        )  # fmt: skip
    if walls["user"] and walls["uids"]:
        # After the mounts, which as another user it could not reach: an interpreter in root's home, say.
        _become_root_of_namespace(own_mounts, *walls["uids"])
    if walls["pid"]:
        _continue_in_pid_namespace()
        if own_mounts:
            linux.unshare(own_mounts)
            mounts.own_proc()
    else:
        linux.adopt_orphans()  # what a sandbox leaves behind comes to the zygote, which ends it
    linux.die_with_parent(signal.SIGKILL)


def map_own_user(uid: int, gid: int) -> None:
    """The one mapping that needs no privileges: oneself."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _become_root_of_namespace(own_mounts: int, first: int, count: int) -> None:
    """Root within, nobody without. The range has a user for every sandbox; only a process outside may map it."""
    waiting, go = os.pipe()
    process = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(waiting, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process}/{name}").write_text(f"0 {first} {count}")
        os._exit(0)
    linux.unshare(linux.CLONE_NEWUSER | own_mounts)
    os.write(go, b"!")
    _, status = os.waitpid(helper, 0)
    if status:
        raise OSError("the user namespace could not be mapped")
    os.close(waiting)
    os.close(go)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    linux.set_dumpable()


def _continue_in_pid_namespace() -> None:
    """Fork; the child goes on as the zygote. The parent stays as its guard: what ends the guard ends all."""
    linux.unshare(linux.CLONE_NEWPID)
    child = os.fork()
    if child:
        # It holds nothing of the server's, and has run nothing of a tenant's.
        linux.die_with_parent(signal.SIGKILL)
        os.closerange(0, 65536)
        _, status = os.waitpid(child, 0)
        os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


# --- around a sandbox -----------------------------------------------------------------------------------------


def enter(walls: dict[str, Any], settings: dict[str, Any]) -> None:
    """Called in the forked sandbox, with its descriptors in place. What fails ends it: no wall is left out silently."""
    os.setsid()
    if not walls["pid"]:
        linux.adopt_orphans()
    uid = settings["uid"]
    _score()
    spaces = (linux.CLONE_NEWIPC | linux.CLONE_NEWUTS) if walls["ipc"] else 0
    if walls["mount"]:
        spaces |= linux.CLONE_NEWNS
    if spaces:
        linux.unshare(spaces)
    if walls["mount"]:
        _own_files(walls, settings)
    _limit(walls, settings)
    if uid is not None:
        linux.renounce_capabilities()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif walls["user"]:
        # A namespace of its own counts its processes by itself, though the user is the same.
        mine = os.getuid(), os.getgid()
        linux.unshare(linux.CLONE_NEWUSER)
        map_own_user(*mine)
        linux.renounce_capabilities()
    linux.drop_capabilities()
    linux.set_dumpable()
    linux.forbid_new_privileges()
    os.chdir(settings["env"]["TMPDIR"])
    if walls["landlock"]:
        landlock.restrict(_rules(walls, settings["env"]["TMPDIR"]))
    if walls["seccomp"]:
        seccomp.install()
    linux.die_with_parent(signal.SIGKILL)


def _own_files(walls: dict[str, Any], settings: dict[str, Any]) -> None:
    """What no other sandbox sees: its scratch directory, its processes, its datasets."""
    owner = os.getuid() if settings["uid"] is None else settings["uid"]
    mounts.own_scratch(owner, settings["scratch_bytes"], [*walls["visible"], *walls["writable"]])
    if walls["pid"]:
        mounts.own_proc()
    if settings["view"] is not None:
        linux.attach_mount(settings["view"], mounts.DATASETS)
        os.close(settings["view"])


def _score() -> None:
    with contextlib.suppress(OSError):  # a kindness to the server, no wall
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _limit(walls: dict[str, Any], settings: dict[str, Any]) -> None:
    _set_limit(resource.RLIMIT_CORE, _CORE_BYTES)
    _set_limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _set_limit(resource.RLIMIT_FSIZE, settings["scratch_bytes"])
    if settings["uid"] is not None or walls["user"]:
        _set_limit(resource.RLIMIT_NPROC, settings["processes"])


def limit_data(size: int) -> None:
    """Of this process and each of its children. What the zygote has is not the function's doing."""
    _set_limit(resource.RLIMIT_DATA, _data_bytes() + size)


def _set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


def _rules(walls: dict[str, Any], scratch: str) -> list[tuple[str, int]]:
    # A root of its own holds nothing but what may be read.
    elsewhere = [*mounts.SYSTEM, *walls["visible"], os.path.realpath("/etc/resolv.conf")]
    readable = ["/"] if walls["mount"] else elsewhere
    rules = [(path, landlock.READ) for path in readable]
    rules += [(f"/dev/{name}", landlock.WRITE_FILES) for name in mounts.DEVICES]
    rules += [(path, landlock.WRITE_FILES) for path in walls["devices"]]
    rules += [(path, landlock.EVERYTHING) for path in walls["writable"]]
    rules += [("/proc", landlock.WRITE_FILES), (scratch, landlock.EVERYTHING)]
    # Without a mount namespace it is everyone's; semaphores live there all the same.
    rules.append(("/dev/shm", landlock.EVERYTHING))  # noqa: S108
    return rules
