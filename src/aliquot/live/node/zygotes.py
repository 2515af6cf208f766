"""The zygotes of a node: one process per profile, started at its first use and restarted when it has ended."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aliquot.live.node.base import Status
from aliquot.live.node.states import StartError
from aliquot.live.node.zygote_failures import ZygoteFailures
from aliquot.live.node.zygote_process import ENDED, ZygoteProcess, ZygoteProfile

MAX_ZYGOTES = 32  # above this number, zygotes without sandboxes are ended
_MAX_ATTEMPTS = 3


class ZygotePool:
    """The zygotes by profile, the least recently used first."""

    def __init__(self, walls: Callable[[ZygoteProfile], dict[str, Any]], loop: asyncio.AbstractEventLoop) -> None:
        """`walls` returns the isolation settings of a profile."""
        self._loop = loop
        self._walls = walls
        self._zygotes: dict[ZygoteProfile, ZygoteProcess] = {}
        self._failures = ZygoteFailures()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._zygotes)

    def get(self, profile: ZygoteProfile) -> ZygoteProcess:
        """Return the zygote of a profile, and start it if there is none.

        Raises `StartError` after `stop`, and for a while after a zygote of the profile has failed.
        """
        if self._stopped:  # a task that waited for a killed zygote must not start another one
            raise StartError(Status.INTERNAL_ERROR, "The node is stopping.")
        zygote = self._zygotes.pop(profile, None)
        if zygote is not None and not zygote.alive:
            self._note_end(profile, zygote)
            zygote = None
        if zygote is None:
            self._failures.check(profile, self._loop.time())
            self._evict()
            zygote = ZygoteProcess(profile, self._walls(profile), self._loop)
        self._zygotes[profile] = zygote  # the most recently used is last
        return zygote

    async def ready(self, profile: ZygoteProfile) -> ZygoteProcess:
        """Return a zygote of the profile that can fork. Raises `StartError`."""
        for _ in range(_MAX_ATTEMPTS):
            zygote = self.get(profile)
            await zygote.ready()
            if zygote.alive:  # otherwise it has ended, or was evicted, before this task continued
                return zygote
        raise StartError(Status.INTERNAL_ERROR, ENDED.format("it was ready before"))

    def _note_end(self, profile: ZygoteProfile, zygote: ZygoteProcess) -> None:
        if zygote.failure is not None:
            self._failures.add(profile, zygote.failure, zygote.ended_s, was_ready=zygote.is_ready)

    def release(self, python: Path) -> bool:
        """End the zygotes of an interpreter that is to be removed. Returns False if one of them is in use."""
        own = [profile for profile in self._zygotes if profile.python == str(python)]
        if not all(self._zygotes[profile].is_idle for profile in own if self._zygotes[profile].alive):
            return False
        for profile in own:
            self._zygotes.pop(profile).kill()
        return True

    def _evict(self) -> None:
        """End idle zygotes above the limit. Tenants choose the profiles, and a zygote may be large."""
        for profile, zygote in list(self._zygotes.items()):
            if not zygote.alive or (len(self._zygotes) >= MAX_ZYGOTES and zygote.is_idle):
                self._note_end(profile, zygote)
                zygote.kill()
                del self._zygotes[profile]

    def stop(self) -> None:
        """End all zygotes. No other one is started from now on."""
        self._stopped = True
        for zygote in self._zygotes.values():
            zygote.kill()
        self._zygotes.clear()
