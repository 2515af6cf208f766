"""Prune a store once in a while, and at once when its disk is almost full."""

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from aliquot.clock import now_ms
from aliquot.live.store.base import Retention, Store, StoreError
from aliquot.live.store.clock_watch import ClockWatch

EVERY_S = 60
LOOK_EVERY_S = 2  # for a disk that is almost full

log = structlog.get_logger("aliquot.store")


async def keep_pruned(store: Store, retention: Retention, weights: Callable[[], Mapping[str, float]]) -> None:
    """Delete what exceeds the retention limits, until cancelled. `weights` returns those of all owners of records."""
    watch = ClockWatch(newest_ms=await store.newest_ms(), wall_ms=now_ms(), steady_s=_steady_s())
    trusted = True
    while True:
        wall_ms = now_ms()
        was_trusted, trusted = trusted, watch.is_trusted(wall_ms=wall_ms, steady_s=_steady_s())
        if was_trusted and not trusted:
            log.warning("the clock has jumped; nothing is deleted by age for a while", seconds=watch.jump_ms // 1000)
        try:
            await store.prune(retention, now_ms=wall_ms if trusted else None, weights=weights())
        except StoreError as error:
            log.warning("old records could not be removed", error=str(error))
        for _ in range(EVERY_S // LOOK_EVERY_S):
            await asyncio.sleep(LOOK_EVERY_S)
            if store.is_low_on_space:
                break


def _steady_s() -> float:
    """Return the seconds since the machine started, with the time that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
