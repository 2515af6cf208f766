"""Divides the processors among tenants: a control group for each tenant, and one for each of its sandboxes below it.

It is for sandboxes on the `cpu` device and on GPUs. On virtual devices the slices divide the processors. Tenants weigh
as much as their namespaces, however many processes their functions start. The group of all tenants weighs a quarter of
a virtual device, so that slices keep their part.
"""

import contextlib
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import structlog

from aliquot.live.device.cgroup_files import CgroupTree, claim_tree, delegate_controllers, is_mounted, release_tree
from aliquot.live.device.slices.base import DEVICE_WEIGHT, ROOT

_log = structlog.get_logger(__name__)

_TENANTS = "tenants"
NOT_DIVIDED = "processors are not divided among tenants, so a function with many processes slows others down: {}"


class _Weights:
    """The file with the weight of a group, and its values."""

    def __init__(self, name: str, usual: int, smallest: int, largest: int) -> None:
        self._name = name
        self._usual = usual
        self._range = (smallest, largest)

    def write(self, group: Path, weight: float) -> None:
        smallest, largest = self._range
        (group / self._name).write_text(str(min(largest, max(smallest, round(self._usual * weight)))))


_V1 = _Weights("cpu.shares", 1024, 2, 262_144)
_V2 = _Weights("cpu.weight", 100, 1, 10_000)


class TenantCpu:
    """The CPU groups of all tenants on a node. Without control groups it does nothing, and `why_not` says why."""

    def __init__(self, tag: str, *, usable: bool = True) -> None:
        """`tag` is unique on the machine."""
        self.why_not = "" if usable else "control groups are not used"
        self._tree: CgroupTree | None = None
        self._top = Path()
        self._weights = _V1
        self._weight_of: dict[str, float] = {}  # by tenant
        self._sandboxes: dict[int, tuple[str, Path]] = {}  # tenant and group of each sandbox
        self._members: dict[str, int] = {}  # the number of a tenant's sandboxes
        self._left: list[Path] = []  # groups whose processes had not ended
        if usable:
            try:
                self._open(tag)
            except OSError as error:
                self.why_not = f"{error.filename or ROOT}: {error.strerror}"

    def _open(self, tag: str) -> None:
        if (ROOT / "cpu").is_dir():
            self._top = ROOT / "cpu" / tag
            self._top.mkdir(exist_ok=True)
            _V1.write(self._top, DEVICE_WEIGHT)
            return
        if not is_mounted():
            self.why_not = f"{ROOT}: no controller cpu"
            return
        tree = claim_tree(tag)
        if "cpu" not in tree.controllers:
            release_tree(tree)
            self.why_not = f"{tree.path.parent}: no controller cpu"
            return
        self._tree, self._top, self._weights = tree, tree.path, _V2

    def open_group(self, sandbox: int, tenant: str) -> int | None:
        """Return a descriptor through which a process of one thread enters its group by writing `0`.

        The caller closes it. There is none with version 2, and then `attach` is needed at once.
        """
        if self.why_not or self._tree is not None:
            return None
        try:
            return os.open(self._join(sandbox, tenant) / "tasks", os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            _log.warning("a sandbox has no CPU group", sandbox=sandbox, why=str(error))
            return None

    def attach(self, sandbox: int, tenant: str, pids: Sequence[int]) -> Path | None:
        """Put the processes in the group of their sandbox, unless all their threads are there.

        With version 2 return the group: they have left the one before.
        """
        if self.why_not:
            return None
        try:
            group = self._join(sandbox, tenant)
            members = set() if self._tree is not None else set((group / "tasks").read_text().split())
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    if not members.issuperset(each.name for each in Path(f"/proc/{pid}/task").iterdir()):
                        (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            _log.warning("a sandbox has no CPU group", sandbox=sandbox, why=str(error))
            return None
        return group if self._tree is not None else None

    def _join(self, sandbox: int, tenant: str) -> Path:
        """Return the group of a sandbox, after making it if it is missing."""
        if sandbox in self._sandboxes:
            return self._sandboxes[sandbox][1]
        group = self._group(tenant) / str(sandbox)
        self._make(group)
        self._sandboxes[sandbox] = (tenant, group)
        self._members[tenant] = self._members.get(tenant, 0) + 1
        return group

    def _make(self, group: Path) -> None:
        """Make the group of a sandbox, and those above it when they are missing."""
        try:
            group.mkdir(exist_ok=True)
        except FileNotFoundError:
            above = group.parent
            for each in (above.parent, above):
                each.mkdir(exist_ok=True)
                if self._tree is not None:
                    delegate_controllers(each, self._tree.controllers)
            self._weights.write(above, self._weight_of.get(above.name, 1))
            group.mkdir(exist_ok=True)

    def detach(self, sandbox: int) -> None:
        """Remove the group of a sandbox that has ended, and its tenant's with the last one. Ignores unknown ones."""
        tenant, group = self._sandboxes.pop(sandbox, ("", None))
        if group is None:
            return
        self._members[tenant] -= 1
        empty = [group]
        if not self._members[tenant]:
            del self._members[tenant]
            empty.append(group.parent)
        self._left = [each for each in (*self._left, *empty) if not _is_removed(each)]

    def set_weight(self, tenant: str, weight: float) -> None:
        """Set the weight of a tenant against the others."""
        name = _tenant_name(tenant)
        self._weight_of[name] = weight
        with contextlib.suppress(FileNotFoundError):  # it has no sandboxes
            if not self.why_not:
                self._weights.write(self._group(tenant), weight)

    def close(self) -> None:
        """Remove all groups that are empty."""
        if self.why_not:
            return
        for directory in sorted((self._top / _TENANTS).glob("**/"), reverse=True):
            with contextlib.suppress(OSError):
                directory.rmdir()
        if self._tree is not None:
            release_tree(self._tree)
        else:
            with contextlib.suppress(OSError):
                self._top.rmdir()

    def _group(self, tenant: str) -> Path:
        return self._top / _TENANTS / _tenant_name(tenant)


def _is_removed(group: Path) -> bool:
    """Remove the group. Return False if it has processes or other groups, so that it is tried again later."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _tenant_name(tenant: str) -> str:
    """Return a name for the tenant's group. A namespace may have characters that a directory cannot have."""
    return sha256(tenant.encode()).hexdigest()[:16]
