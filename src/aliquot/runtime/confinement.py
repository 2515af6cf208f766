"""Confine a zygote before it imports anything, and make the namespaces of its sandboxes outside of it.

A zygote runs code that tenants chose, so it has no privileges at all: a user of its own, no capabilities, Landlock and
a filter of system calls. But a sandbox must be forked from it, and must get namespaces, mounts and another user, which
takes privileges. So there are three kinds of processes, each forked from the one before it:

    guard         waits outside the zygote's namespaces. If the server is killed, the kernel kills it, and the
                  supervisor with it
    supervisor    the first process of the zygote's pid namespace. It has all capabilities in the zygote's user
                  namespace, and never runs code of a tenant (`supervisor.py`)
    zygote        has loaded the imports, and has no privileges

For each sandbox the supervisor runs a preparer, which makes a user namespace that belongs to the zygote's user, with
all other namespaces in it. The kernel lets a process enter the namespaces that belong to its user, so the fork of the
zygote may enter this one, become the sandbox's user there, and drop its privileges again.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from . import isolation, landlock, linux, mounts, network, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .borrowed_memory import NamespaceHolder

# In the order in which a process has to enter them: the user namespace gives the right to enter the others.
_SPACES = {
    "user": linux.CLONE_NEWUSER,
    "mnt": linux.CLONE_NEWNS,
    "ipc": linux.CLONE_NEWIPC,
    "uts": linux.CLONE_NEWUTS,
    "net": linux.CLONE_NEWNET,
}
_PREPARED = ("user", "mnt")  # those in which there is something to prepare


def spaces(layers: dict[str, Any]) -> dict[str, int]:
    """Return the namespaces that a preparer makes, by their name in /proc."""
    without = set() if layers["ipc"] else {"ipc", "uts"}
    without |= set() if layers["network"] else {"net"}
    return {name: flag for name, flag in _SPACES.items() if name not in without}


def enclose_supervisor(layers: dict[str, Any]) -> None:
    """Leave a guard behind, and continue as the first process of the zygote's namespaces.

    The mounts come before the user namespace. So they belong to the outside, and nothing inside can remove them.
    """
    layers["visible"] = isolation.visible_paths(layers["visible"])
    mine = os.getuid(), os.getgid()
    if layers["uids"]:
        linux.unshare(linux.CLONE_NEWNS)
    else:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        isolation.map_own_user(*mine)
    _leave_guard(layers)
    own_network = linux.CLONE_NEWNET if layers["network"] else 0
    uid = layers["zygote_uid"]
    owner = mine[0] if uid is None else layers["uids"][0] + uid
    mounts.change_root(
        layers["visible"], layers["hidden"], layers["writable"], layers["devices"], layers["masked"],
        views=layers["views"], scratch=(owner, layers["zygote_scratch_bytes"]),
    )  # fmt: skip
    if layers["uids"]:
        # After the mounts: another user could not reach an interpreter in root's home, for example.
        isolation.become_root_of_namespace(linux.CLONE_NEWNS | own_network, *layers["uids"], owner=uid or 0)
    else:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | own_network)
        isolation.map_own_user(*mine)
    if own_network:
        network.configure([])  # imports may use the loopback interface, and nothing else
    linux.set_dumpable(dumpable=False)
    linux.die_with_parent(signal.SIGKILL)


def _leave_guard(layers: dict[str, Any]) -> None:
    linux.unshare(linux.CLONE_NEWPID)
    child = os.fork()
    if child:
        os.closerange(0, 65536)
        if layers["uids"]:
            first = layers["uids"][0]
            os.setgroups([])
            os.setresgid(first, first, first)
            os.setresuid(first, first, first)
        linux.set_dumpable(dumpable=False)
        linux.die_with_parent(signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def confine_zygote(layers: dict[str, Any]) -> None:
    """Drop every privilege. From here on the process may run code of a tenant."""
    isolation.limit_files()
    linux.renounce_capabilities()
    _become(layers["zygote_uid"])
    linux.drop_capabilities()
    linux.set_dumpable()
    linux.forbid_new_privileges()
    if layers["landlock"]:
        # Files are protected by read-only mounts. What counts here is that no mount and no other process can be
        # reached. More would forbid a sandbox to write to the mounts that it gets later.
        landlock.restrict([("/", landlock.NO_DEVICES)])
    if layers["seccomp"]:
        seccomp.install(seccomp.ZYGOTE)


def _become(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


# --- a sandbox ------------------------------------------------------------------------------------------------


def make_spaces(layers: dict[str, Any], settings: dict[str, Any], holder: NamespaceHolder) -> list[int]:
    """Make the namespaces of a sandbox, as property of the zygote's user, and mount the sandbox's own files.

    The calling process is inside afterwards. Return descriptors of the namespaces, in the order of `spaces`.
    """
    mine = os.getuid(), os.getgid()
    if layers["zygote_uid"] is not None:
        linux.keep_capabilities()
        os.seteuid(layers["zygote_uid"])
    linux.set_dumpable()  # otherwise its users could not be mapped
    kinds = spaces(layers)
    flags, uid = sum(kinds.values()), settings["uid"]
    # A process that uses the memory of another one can make no user namespace for itself, only for a child.
    with holder.started(flags) as child:
        if uid is not None:
            isolation.map_user(uid, uid, str(child))
        else:
            isolation.map_own_user(*mine, str(child))
        made = [os.open(f"/proc/{child}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in kinds]
    for name, fd in zip(kinds, made):  # noqa: B905 - Python 3.9 on
        if name in _PREPARED:
            linux.enter_namespace(fd, kinds[name])
    _become(uid)
    linux.set_dumpable()
    isolation.limit_watches()
    isolation.mount_own_files(layers, settings)
    linux.set_dumpable(dumpable=False)
    return made


def mount_processes(namespace: int) -> None:
    """Mount the /proc of another pid namespace."""
    try:
        linux.attach_mount(linux.detached_proc(namespace), "/proc")
    except OSError:  # before Linux 6.17 only a process in that namespace can, so a child does
        _mount_processes_inside(namespace)


def _mount_processes_inside(namespace: int) -> None:
    linux.enter_namespace(namespace, linux.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            mounts.mount_proc()
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    if ended:
        raise OSError(0, "/proc could not be mounted in the sandbox")


def enter_spaces(layers: dict[str, Any], descriptors: list[int]) -> None:
    """Enter prepared namespaces, and have the next forked process begin a pid namespace."""
    for (_, flag), fd in zip(spaces(layers).items(), descriptors):  # noqa: B905 - Python 3.9 on
        linux.enter_namespace(fd, flag)
        os.close(fd)
    linux.unshare(linux.CLONE_NEWPID)
