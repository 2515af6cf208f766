"""CPU groups for processes that serve all tenants: the server itself, the storage agent and the relay.

They work for whoever asks: an attacker's listings and connections are their work. In the server's own group, each of
their threads would compete with the server. Here all of them together weigh as much as a virtual device, and each as
much as the others. The groups of tenants and of zygotes are beside, so neither can take their part.

The server weighs twice as much as all tenants. Otherwise a sandbox that it has just woken takes the processor from it,
and the sandboxes to which it would send next wait.
"""

import contextlib
import os
from pathlib import Path

import structlog

from aliquot.live.device.cgroup_files import (
    CgroupTree,
    claim_tree,
    delegate_controllers,
    is_mounted,
    release_tree,
    server_group,
)
from aliquot.live.device.slices.base import DEVICE_WEIGHT, ROOT

SERVICES = "services"
SERVER = "server"
_SERVER_WEIGHT = 2  # against all tenants
_SHARES, _WEIGHT = 1024, 100  # the kernel's usual values, with version 1 and version 2

log = structlog.get_logger(__name__)


class ServiceCpu:
    """Puts processes that serve the server into groups of their own. Without control groups it does nothing."""

    def __init__(self, tag: str) -> None:
        """`tag` is unique on the machine."""
        self._tag = tag
        self._services: Path | None = None  # the group above all others
        self._tree: CgroupTree | None = None  # with version 2
        self._before: Path | None = None  # the server's group of version 1 before it was placed

    def place_server(self, *, usable: bool) -> None:
        """Give this process more weight than functions have, if these have CPU groups. Blocks."""
        try:
            if usable:
                self._place_server()
        except OSError as error:
            log.debug("the server has no CPU group", why=str(error))

    def _place_server(self) -> None:
        if (ROOT / "cpu").is_dir():
            group = ROOT / "cpu" / self._tag / SERVER
            group.mkdir(parents=True, exist_ok=True)
            (group / "cpu.shares").write_text(str(_SERVER_WEIGHT * _SHARES))
            self._before = ROOT / "cpu" / _own_group().lstrip("/")
            (group / "cgroup.procs").write_text(str(os.getpid()))
        elif is_mounted():
            tree = claim_tree(self._tag)
            group = server_group(tree)
            if group.is_dir() and "cpu" in tree.controllers:
                (group / "cpu.weight").write_text(str(_SERVER_WEIGHT * _WEIGHT))

    def place(self, name: str, pid: int) -> None:
        """Put a new process into the group of this name. `TenantCpu.why_not` tells the operator where that fails."""
        try:
            self._place(name, pid)
        except OSError as error:
            log.debug("a process has no CPU group", process=name, why=str(error))

    def _place(self, name: str, pid: int) -> None:
        if (ROOT / "cpu").is_dir():
            services, file, usual = ROOT / "cpu" / self._tag / SERVICES, "cpu.shares", _SHARES
            services.mkdir(parents=True, exist_ok=True)
        elif is_mounted():
            tree = claim_tree(self._tag)
            if "cpu" not in tree.controllers:
                release_tree(tree)
                return
            self._tree = tree
            services, file, usual = tree.path / SERVICES, "cpu.weight", _WEIGHT
            services.mkdir(exist_ok=True)
            delegate_controllers(services, ("cpu",))
        else:
            return
        (services / file).write_text(str(DEVICE_WEIGHT * usual))
        group = services / name
        group.mkdir(exist_ok=True)
        self._services = services
        with contextlib.suppress(ProcessLookupError):  # it has ended at once
            (group / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Remove the groups of processes that have ended, and the server's own group if nothing else is in it."""
        if self._before is not None:
            with contextlib.suppress(OSError):
                (self._before / "cgroup.procs").write_text(str(os.getpid()))
                (ROOT / "cpu" / self._tag / SERVER).rmdir()
                (ROOT / "cpu" / self._tag).rmdir()
        if self._services is None:
            return
        for group in (*self._services.glob("*/"), self._services):
            with contextlib.suppress(OSError):
                group.rmdir()
        if self._tree is not None:
            release_tree(self._tree)
        else:
            with contextlib.suppress(OSError):
                self._services.parent.rmdir()


def _own_group() -> str:
    """Return the path of this process's group of version 1 in the controller's tree."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path
    return "/"
