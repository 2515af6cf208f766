"""The zygotes of a node: one process per profile, started at its first use and restarted when it has ended."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aliquot.budgets import Budget
from aliquot.core.units import MIB
from aliquot.live.node.base import Status
from aliquot.live.node.sandbox_resources import SandboxResources
from aliquot.live.node.states import StartError
from aliquot.live.node.zygote_failures import ZygoteFailures
from aliquot.live.node.zygote_process import (
    ENDED,
    MAX_ZYGOTE_BYTES,
    MIN_COUNTED_BYTES,
    ZygoteProcess,
    ZygoteProfile,
    ZygoteShare,
)

MAX_ZYGOTES = 32  # above this number, zygotes without sandboxes are ended
MAX_TENANT_ZYGOTES = 8  # of these, zygotes that one tenant's starts began
MAX_MEMORY_DIVISOR = 2  # all zygotes together may use this part of the machine's memory
NO_MEMORY = (
    "No sandbox can be made: the namespace's running calls use {} sets of `requirements` and `imports`, which take {} "
    "MiB of memory. Call again when some of the calls have ended, or import less."
)
PLATFORM = ""  # stands for no tenant
_MAX_ATTEMPTS = 3


class ZygotePool:
    """The zygotes by profile, the least recently used first.

    Tenants with equal profiles share a zygote. It counts as one of the tenant whose start began it.
    """

    def __init__(
        self,
        walls: Callable[[ZygoteProfile], dict[str, Any]],
        resources: SandboxResources,
        loop: asyncio.AbstractEventLoop,
        free: Callable[[ZygoteProcess, str], str | None] = lambda _zygote, _tenant: None,
    ) -> None:
        """`walls` returns the isolation settings of a profile.

        `free` ends the idle sandboxes of a zygote for a tenant, and returns an empty text. It returns the name of
        another tenant if only others use the zygote, and None if the tenant does.
        """
        self._loop = loop
        self._resources = resources
        self._free = free
        self._started = 0
        self._walls = walls
        self._zygotes: dict[ZygoteProfile, ZygoteProcess] = {}
        self._owners: dict[ZygoteProfile, str] = {}
        self._failures = ZygoteFailures()
        self._max_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MAX_MEMORY_DIVISOR
        self._stopped = False

    def __len__(self) -> int:
        return len(self._zygotes)

    def has_space(self, tenant: str) -> bool:
        """Return whether another zygote of the tenant's would push out no other."""
        owned = list(self._owners.values())
        return len(owned) < MAX_ZYGOTES // 2 and owned.count(tenant) < MAX_TENANT_ZYGOTES // 2

    def get(self, profile: ZygoteProfile, tenant: str = PLATFORM) -> ZygoteProcess:
        """Return the zygote of a profile, and start it for this tenant if there is none.

        Raises `StartError` after `stop`, and for a while after a zygote of the profile has failed.
        """
        if self._stopped:  # a task that waited for a killed zygote must not start another one
            raise StartError(Status.INTERNAL_ERROR, "The node is stopping.")
        zygote = self._zygotes.get(profile)
        if zygote is not None and not zygote.alive:
            self._end(profile)
            zygote = None
        elif zygote is not None:
            del self._zygotes[profile]
        if zygote is None:
            self._failures.check(profile, self._loop.time())
            self._evict(tenant)
            zygote = self._start(profile)
            self._owners[profile] = tenant
        self._zygotes[profile] = zygote  # the most recently used is last
        return zygote

    def _start(self, profile: ZygoteProfile) -> ZygoteProcess:
        self._started += 1
        try:
            share = self._resources.allocate_zygote(f"zygote-{self._started}", MAX_ZYGOTE_BYTES)
        except OSError as error:
            raise StartError(Status.INTERNAL_ERROR, f"The runtime could not be started: {error}.") from error
        return ZygoteProcess(profile, self._walls(profile), self._loop, share, self._release)

    def _release(self, share: ZygoteShare) -> None:
        """Take back a zygote's resources once its last process has ended."""
        if share.cgroup is None:
            self._resources.release_zygote(share)
            return
        removed = self._loop.run_in_executor(None, share.cgroup.remove)
        removed.add_done_callback(lambda _: self._resources.release_zygote(share))

    async def ready(self, profile: ZygoteProfile, tenant: str = PLATFORM) -> ZygoteProcess:
        """Return a zygote of the profile that can fork. Raises `StartError`."""
        for _ in range(_MAX_ATTEMPTS):
            zygote = self.get(profile, tenant)
            await zygote.ready()
            if zygote.alive:  # otherwise it has ended, or was evicted, before this task continued
                return zygote
        raise StartError(Status.INTERNAL_ERROR, ENDED.format("it was ready before"))

    def ready_unread(self, profile: ZygoteProfile) -> ZygoteProcess | None:
        """Return a zygote that said in time that it can fork, while the server stood still and did not read it.

        Raises `StartError` if it said that it has failed.
        """
        zygote = self._zygotes.get(profile)
        if zygote is None:
            return None
        zygote.read()
        if zygote.failure is not None:
            raise zygote.failure
        return zygote if zygote.alive and zygote.is_ready else None

    def _note_end(self, profile: ZygoteProfile, zygote: ZygoteProcess) -> None:
        if zygote.failure is not None:
            self._failures.add(profile, zygote.failure, zygote.ended_s, was_ready=zygote.is_ready)

    def release(self, python: Path) -> bool:
        """End the zygotes of an interpreter that is to be removed. Returns False if one of them is in use."""
        own = [profile for profile in self._zygotes if profile.python == str(python)]
        if not all(self._zygotes[profile].is_idle for profile in own if self._zygotes[profile].alive):
            return False
        for profile in own:
            self._end(profile)
        return True

    def _evict(self, tenant: str) -> None:
        """End zygotes above the limits, so that there is space for one of this tenant's.

        Tenants choose the profiles, and a zygote may be large. So a tenant's own end first above its limits, and
        those of the tenant with the most above the limit of all. The least recently used end first. Raises `StartError`
        if calls run in all of the tenant's own.
        """
        for profile in [profile for profile, zygote in self._zygotes.items() if not zygote.alive]:
            self._end(profile)
        while self._count(tenant) >= MAX_TENANT_ZYGOTES:
            if not self._end_one([tenant]):
                break
        while not self._has_memory(tenant):
            if not self._end_one([tenant]) and not self._end_warm(tenant):
                used = self._memory_budget().held(tenant) // MIB
                raise StartError(Status.DEVELOPER_ERROR, NO_MEMORY.format(self._count(tenant), used))
        while len(self._zygotes) >= MAX_ZYGOTES:
            if not self._end_one(sorted(set(self._owners.values()), key=self._count, reverse=True)):
                break

    def _has_memory(self, tenant: str) -> bool:
        """Return whether the memory of another zygote is within the tenant's part. Its first is always made."""
        if tenant == PLATFORM or not self._count(tenant):
            return True
        return self._memory_budget().fits(tenant, MIN_COUNTED_BYTES)

    def _memory_budget(self) -> Budget:
        """Return the memory that the zygotes of each tenant use."""
        budget = Budget("zygotes", "bytes", self._max_bytes)
        for profile, zygote in self._zygotes.items():
            budget.take(self._owners[profile], zygote.used_bytes)
        return budget

    def _end_warm(self, tenant: str) -> bool:
        """End the tenant's least recently used zygote without running calls, and its sandboxes.

        A zygote that only others use counts for one of them from now on. Returns False if all are busy.
        """
        for profile, zygote in self._zygotes.items():
            user = self._free(zygote, tenant) if self._owners[profile] == tenant else None
            if user is not None:
                if user:
                    self._owners[profile] = user
                else:
                    self._end(profile)
                return True
        return False

    def _count(self, tenant: str) -> int:
        return sum(owner == tenant for owner in self._owners.values())

    def _end_one(self, tenants: list[str]) -> bool:
        """End an idle zygote of the first of these tenants that has one. Returns False if there is none."""
        for tenant in tenants:
            for profile, zygote in self._zygotes.items():
                if self._owners[profile] == tenant and zygote.is_idle:
                    self._end(profile)
                    return True
        return False

    def _end(self, profile: ZygoteProfile) -> None:
        zygote = self._zygotes.pop(profile)
        self._owners.pop(profile, None)
        self._note_end(profile, zygote)
        zygote.kill()

    def stop(self) -> None:
        """End all zygotes. No other one is started from now on."""
        self._stopped = True
        for profile in list(self._zygotes):
            self._end(profile)
