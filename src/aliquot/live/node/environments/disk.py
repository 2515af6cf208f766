"""The environments on the disk: their sizes, their tenants, their last use, and which are removed to make space."""

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aliquot.core.units import MIB
from aliquot.durable_files import remove_directory, sweep_removed
from aliquot.live.node.environments.errors import EnvironmentsFullError
from aliquot.live.node.environments.limits import EnvironmentLimits

DIRECTORY, SCRATCH, COMPLETE = "environments", ".scratch", ".complete"
USE_NOTED_EVERY_S = 300  # the time of the last use is written at most this often
_BLOCK_BYTES = 512  # the unit of `st_blocks`


class EnvironmentMark(Struct, frozen=True):
    """The contents of the file that marks an environment as complete. Its time is that of the last use."""

    requirements: tuple[str, ...]
    tenants: tuple[str, ...] = ()  # who asked for it
    size: int = 0  # in bytes on the disk


class StoredMark(Struct, frozen=True):
    """An environment that was found on the disk."""

    name: str
    mark: EnvironmentMark
    used_s: float  # since the epoch


class StoredEnvironments:
    """The complete environments, as the event loop knows them. It reads and writes no files."""

    def __init__(self, limits: EnvironmentLimits, release: Callable[[str], bool], found: Iterable[StoredMark]) -> None:
        """`release` ends idle processes that use an environment, and returns False if one of them is busy."""
        self._limits = limits
        self._release = release
        self._marks = {each.name: each.mark for each in found}
        self._used_s = {each.name: each.used_s for each in found}

    def __contains__(self, name: str) -> bool:
        return name in self._marks

    def add(self, name: str, mark: EnvironmentMark, *, now_s: float) -> None:
        self._marks[name] = mark
        self._used_s[name] = now_s

    def forget(self, name: str) -> None:
        self._marks.pop(name, None)
        self._used_s.pop(name, None)

    def use(self, name: str, tenant: str, *, now_s: float) -> EnvironmentMark | None:
        """Note that a tenant uses an environment. Returns its mark if it must be written again."""
        mark = self._marks.get(name)
        if mark is None or (tenant in mark.tenants and now_s - self._used_s[name] < USE_NOTED_EVERY_S):
            return None
        if tenant not in mark.tenants:
            mark = self._marks[name] = replace(mark, tenants=(*mark.tenants, tenant))
        self._used_s[name] = now_s
        return mark

    def make_space(self, name: str, mark: EnvironmentMark, *, now_s: float) -> list[str]:
        """Choose environments to remove, so that a new one fits. They are forgotten, and returned.

        Environments that were not used for long are always removed, others as far as the limits require it. Raises
        `EnvironmentsFullError` if those that are not in use do not suffice.
        """
        before = set(self._marks)
        for other in [other for other, used_s in self._used_s.items() if now_s - used_s > self._limits.unused_s]:
            self._remove(other)
        self.add(name, mark, now_s=now_s)
        try:
            for tenant in mark.tenants:
                self._shrink_tenant(name, tenant)
            self._shrink_total(name)
        except EnvironmentsFullError:
            self.forget(name)
            raise
        return sorted(before - set(self._marks))

    def _shrink_tenant(self, new: str, tenant: str) -> None:
        limit = self._limits.tenant_bytes
        while (used := self._parts()[tenant]) > limit:
            if not self._remove_one(new, tenant):
                raise EnvironmentsFullError(
                    f"The environments of namespace {tenant} would take {_mib(used)}, and may take {_mib(limit)}. "
                    "Call no more functions with other requirements for a while, or ask the operator for more "
                    "(--limit environments_tenant_bytes)."
                )

    def _shrink_total(self, new: str) -> None:
        limit = self._limits.total_bytes
        while (total := sum(mark.size for mark in self._marks.values())) > limit:
            parts = self._parts()
            largest_first: list[str | None] = [*sorted(parts, key=lambda tenant: -parts[tenant]), None]
            if not any(self._remove_one(new, tenant) for tenant in largest_first):
                raise EnvironmentsFullError(
                    f"All environments together would take {_mib(total)}, and may take {_mib(limit)}; the others are "
                    "in use. Try again later, or ask the operator for more (--limit environments_bytes)."
                )

    def _parts(self) -> dict[str, int]:
        """Return the bytes of each tenant. Those of an environment that several asked for are divided among them."""
        parts: dict[str, int] = {}
        for mark in self._marks.values():
            for tenant in mark.tenants or ("",):
                parts[tenant] = parts.get(tenant, 0) + mark.size // max(1, len(mark.tenants))
        return parts

    def _remove_one(self, new: str, tenant: str | None) -> bool:
        """Remove the least recently used environment that only this tenant asked for, or with None any one."""
        chosen = [name for name, mark in self._marks.items() if tenant is None or (mark.tenants or ("",)) == (tenant,)]
        return any(self._remove(name) for name in sorted(chosen, key=self._used_s.__getitem__) if name != new)

    def _remove(self, name: str) -> bool:
        if not self._release(name):
            return False
        self.forget(name)
        return True


# --- files -------------------------------------------------------------------------------------------------------


def load_marks(directory: Path) -> list[StoredMark]:
    """Return the complete environments. Those that an earlier server was building or removing are deleted."""
    sweep_removed(directory)
    found = []
    for path in sorted(directory.glob("*")):
        mark = None if path.suffix == SCRATCH else _read_mark(path)
        if mark is None:
            remove_directory(path)
        else:
            found.append(StoredMark(path.name, mark, (path / COMPLETE).stat().st_mtime))
    return found


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"


def _read_mark(directory: Path) -> EnvironmentMark | None:
    """Return the mark of an environment, or None if it is not complete. Older servers wrote the requirements only."""
    try:
        content = (directory / COMPLETE).read_bytes()
    except OSError:
        return None
    try:
        return msgspec.json.decode(content, type=EnvironmentMark)
    except msgspec.DecodeError:
        return EnvironmentMark(tuple(content.decode(errors="replace").splitlines()), (), tree_bytes(directory))


def write_mark(directory: Path, mark: EnvironmentMark) -> None:
    """Write the mark atomically, so that a full disk leaves no mark."""
    draft = directory / f"{COMPLETE}.draft"
    draft.write_bytes(msgspec.json.encode(mark))
    draft.replace(directory / COMPLETE)


def tree_bytes(*directories: Path) -> int:
    """Return the disk space of all files below the directories. Files with several names count once."""
    total = 0
    seen: set[int] = set()
    pending = [str(directory) for directory in directories]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        pending.append(entry.path)
                    elif found.st_nlink > 1:
                        if found.st_ino in seen:
                            continue
                        seen.add(found.st_ino)
                    total += found.st_blocks * _BLOCK_BYTES
        except FileNotFoundError:
            continue  # a build removes its temporary files
    return total
