"""Isolate zygotes and sandboxes with every layer that the server found on this machine.

There are two steps, because the modules that a zygote imports for tenants cannot be trusted either. `enclose` isolates
a zygote from the machine before it imports anything. It gets a root directory without other users' files, a pid
namespace, and a user namespace in which it keeps the privileges for the second step. `enter` isolates each forked
sandbox from the zygote and drops its privileges.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from . import landlock, linux, mounts, network, seccomp

_CORE_BYTES = 0
_OPEN_FILES = 4096
# The kernel has few of these for all sandboxes of a zygote together, usually 96,000 and 128.
_PENDING_SIGNALS = 256
_INOTIFY_INSTANCES = 4
_INOTIFY_WATCHES = 4096
_OOM_SCORE = "500"  # if the machine runs out of memory, the kernel kills sandboxes before the server


def visible_paths(extra: list[str]) -> list[str]:
    """Return the paths that this interpreter needs, apart from the system's."""
    package = str(Path(__file__).resolve().parent.parent)
    paths = {package, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *extra}
    paths |= {path for path in sys.path if os.path.isabs(path)}  # noqa: PTH117
    return sorted(path for path in paths if path != "/" and os.path.exists(path))  # noqa: PTH110


# --- the zygote -----------------------------------------------------------------------------------------------


def enclose(layers: dict[str, Any]) -> None:
    """Isolate the zygote, before its imports. With a pid namespace another process returns from this call."""
    layers["visible"] = visible_paths(layers["visible"])
    own_mounts = linux.CLONE_NEWNS if layers["mount"] else 0
    own_network = linux.CLONE_NEWNET if layers["network"] else 0
    if layers["user"] and not layers["uids"]:
        mine = os.getuid(), os.getgid()
        linux.unshare(linux.CLONE_NEWUSER | own_mounts)
        map_own_user(*mine)
    elif own_mounts:
        linux.unshare(own_mounts)
    if own_mounts:
        mounts.change_root(
            layers["visible"], layers["hidden"], layers["writable"], layers["devices"], layers["masked"],
            views=layers["views"],
        )  # fmt: skip
    if layers["user"] and layers["uids"]:
        # After the mounts: another user could not reach an interpreter in root's home, for example.
        become_root_of_namespace(own_mounts | own_network, *layers["uids"], owner=layers["zygote_uid"] or 0)
        limit_watches()  # of each user in it, and each sandbox is one
    elif own_network:
        linux.unshare(own_network)
    if own_network:
        network.configure([])  # imports may use the loopback interface, and nothing else
    if layers["pid"]:
        _continue_in_pid_namespace()
        if own_mounts:
            linux.unshare(own_mounts)
            mounts.mount_proc()
    else:
        linux.adopt_orphans()  # processes that a sandbox leaves behind become the zygote's, which ends them
    linux.die_with_parent(signal.SIGKILL)


def map_own_user(uid: int, gid: int, process: str = "self") -> None:
    """Map only our own user in the namespace of a process, which needs no privileges."""
    linux.write_file(f"/proc/{process}/setgroups", "deny")
    map_user(uid, gid, process)


def map_user(uid: int, gid: int, process: str) -> None:
    """Map one user in the namespace of a process."""
    linux.write_file(f"/proc/{process}/uid_map", f"{uid} {uid} 1")
    linux.write_file(f"/proc/{process}/gid_map", f"{gid} {gid} 1")


def become_root_of_namespace(others: int, first: int, count: int, *, owner: int) -> None:
    """Become root inside a new user namespace and other new ones, and an unprivileged user outside it.

    The range has a user for every sandbox. Only a process outside the namespace may map it, so a child does. The
    namespace belongs to the user of the range with the number `owner`. The kernel counts pending signals and inotify
    instances in the namespace for its owner, too, and root has no limits of its own for them.
    """
    waiting, go = os.pipe()
    process = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(waiting, 1)
        for name in ("uid_map", "gid_map"):
            linux.write_file(f"/proc/{process}/{name}", f"0 {first} {count}")
        os._exit(0)
    linux.keep_capabilities()  # without them some machines refuse it
    os.seteuid(first + owner)
    linux.unshare(linux.CLONE_NEWUSER | others)
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
    """Fork, and let the child continue as the zygote. When the waiting parent ends, the kernel ends the child."""
    linux.unshare(linux.CLONE_NEWPID)
    child = os.fork()
    if child:
        # The parent keeps no descriptors of the server, and has run no code of a tenant.
        linux.set_dumpable(dumpable=False)
        linux.die_with_parent(signal.SIGKILL)
        os.closerange(0, 65536)
        _, status = os.waitpid(child, 0)
        os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


# --- a sandbox ------------------------------------------------------------------------------------------------


def enter(layers: dict[str, Any], settings: dict[str, Any]) -> None:
    """Isolate the forked sandbox, once its descriptors are in place. A layer that fails raises `OSError`."""
    if not layers["pid"]:
        linux.adopt_orphans()
    spaces = (linux.CLONE_NEWIPC | linux.CLONE_NEWUTS) if layers["ipc"] else 0
    if layers["mount"]:
        spaces |= linux.CLONE_NEWNS
    if spaces:
        linux.unshare(spaces)
    if layers["mount"]:
        mount_own_files(layers, settings)
        if layers["pid"]:
            mounts.mount_proc()
    drop_privileges(layers, settings, own_user_namespace=False)
    restrict_calls(layers, settings)
    linux.die_with_parent(signal.SIGKILL)


def drop_privileges(layers: dict[str, Any], settings: dict[str, Any], *, own_user_namespace: bool) -> None:
    """Set the limits of the sandbox, change its user and drop its capabilities.

    Its namespaces are in place, except for a user namespace of its own if it has none yet and cannot change its user.
    """
    os.setsid()
    uid = settings["uid"]
    if not layers["confined"]:  # otherwise the zygote has done so
        set_oom_score()
        limit_files()
    _limit(layers, settings)
    if uid is None and layers["user"] and not own_user_namespace:
        # In its own namespace its processes are counted separately, although the user is the same.
        mine = os.getuid(), os.getgid()
        linux.unshare(linux.CLONE_NEWUSER)
        map_own_user(*mine)
        limit_watches()
    if uid is not None or layers["user"]:
        linux.renounce_capabilities()
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    linux.drop_capabilities()
    linux.set_dumpable()
    linux.forbid_new_privileges()


def restrict_calls(layers: dict[str, Any], settings: dict[str, Any]) -> None:
    """Limit the files that the sandbox can use, and its system calls. Its mounts are in place."""
    os.chdir(settings["env"]["TMPDIR"])
    if layers["landlock"]:
        landlock.restrict(_rules(layers, settings["env"]["TMPDIR"]))
    if layers["seccomp"]:
        seccomp.install(seccomp.AFTER_ZYGOTE if layers["confined"] else seccomp.SANDBOX)


def mount_own_files(layers: dict[str, Any], settings: dict[str, Any]) -> None:
    """Mount the scratch directory, and the datasets and volumes that only this sandbox sees."""
    owner = os.getuid() if settings["uid"] is None else settings["uid"]
    mounts.mount_scratch(owner, settings["scratch_bytes"], [*layers["visible"], *layers["writable"]])
    for target, fd in settings["views"]:
        linux.attach_mount(fd, target)
        os.close(fd)


def take_views(request: dict[str, Any], fds: list[int]) -> list[tuple[str, int]]:
    """Take the descriptors of a sandbox's views off the end, and return each with the place where it belongs."""
    targets = request["views"]
    return list(zip(targets, [fds.pop() for _ in targets][::-1]))  # noqa: B905 - Python 3.9 on


def set_oom_score() -> None:
    """Have the kernel kill this process before the server, if the machine runs out of memory."""
    with contextlib.suppress(OSError):  # this protects the server, and isolates nothing
        linux.write_file("/proc/self/oom_score_adj", _OOM_SCORE)


def limit_watches() -> None:
    """Limit the inotify instances and watches in our user namespace, which the kernel counts for its owners, too."""
    for kind, count in (("instances", _INOTIFY_INSTANCES), ("watches", _INOTIFY_WATCHES)):
        with contextlib.suppress(FileNotFoundError):  # a kernel without inotify
            linux.write_file(f"/proc/sys/user/max_inotify_{kind}", str(count))


def _limit(layers: dict[str, Any], settings: dict[str, Any]) -> None:
    _set_limit(resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS)
    _set_limit(resource.RLIMIT_FSIZE, settings.get("file_bytes") or settings["scratch_bytes"])
    if settings["uid"] is not None or layers["user"]:
        _set_limit(resource.RLIMIT_NPROC, settings["processes"])


def limit_files() -> None:
    """Limit the open files, and forbid core dumps."""
    _set_limit(resource.RLIMIT_CORE, _CORE_BYTES)
    _set_limit(resource.RLIMIT_NOFILE, _OPEN_FILES)


def limit_data(size: int) -> None:
    """Limit the data of this process and of each of its children. The zygote's share is not counted."""
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


def _rules(layers: dict[str, Any], scratch: str) -> list[tuple[str, int]]:
    # With its own root directory, everything in it may be read, and its /dev contains only what it may use.
    elsewhere = [*mounts.SYSTEM, *layers["visible"], os.path.realpath("/etc/resolv.conf")]
    readable = ["/"] if layers["mount"] else elsewhere
    rules = [(path, landlock.READ) for path in readable]
    devices = ["/dev"] if layers["mount"] else [f"/dev/{name}" for name in mounts.DEVICES]
    rules += [(path, landlock.WRITE_FILES) for path in devices]
    rules += [(path, landlock.WRITE_FILES) for path in layers["devices"]]
    rules += [(path, landlock.EVERYTHING) for path in layers["writable"]]
    rules += [("/proc", landlock.WRITE_FILES), (scratch, landlock.EVERYTHING)]
    # Without a mount namespace all processes share it, but semaphores need it.
    rules.append(("/dev/shm", landlock.EVERYTHING))  # noqa: S108
    if mounts.VOLUMES in layers["views"]:
        rules.append((mounts.VOLUMES, landlock.EVERYTHING))
    return rules
