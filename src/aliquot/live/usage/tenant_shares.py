"""The part of the devices that each tenant was due and got, over the last ten seconds and the last minute.

Service is counted as in the scheduler: device time times share. The `cpu` is apart from the accelerators, because
tenants do not compete between them. The state is sampled some twenty times a second at random moments, because calls
of equal length could otherwise always be seen, or never. Of 200 samples a third is known to three points.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from aliquot.core.lifecycle import BUSY
from aliquot.core.model import CPU
from aliquot.core.scheduler import Scheduler

SAMPLE_INTERVAL_S = 0.05  # on average, while there are calls
_IDLE_INTERVAL_S = 0.5
WINDOWS_S = (10, 60)
_MAX_SAMPLES = round(1.1 * WINDOWS_S[-1] / SAMPLE_INTERVAL_S)


class ShareKey(NamedTuple):
    """A tenant on one kind of resource."""

    tenant: str
    accelerated: bool


class _ShareSample(NamedTuple):
    at_s: float
    busy: dict[ShareKey, float]


class TenantShares:
    """Samples of the slots and shares that tenants hold."""

    def __init__(self) -> None:
        self._samples: deque[_ShareSample] = deque(maxlen=_MAX_SAMPLES)

    def sample(self, now_s: float, busy: Iterable[tuple[ShareKey, float]]) -> None:
        """Note which tenants hold how much of the devices now. An idle moment needs no sample."""
        held: dict[ShareKey, float] = {}
        for key, share in busy:
            held[key] = held.get(key, 0.0) + share
        if held:
            self._samples.append(_ShareSample(now_s, held))

    def rows(self, now_s: float, weights: Mapping[str, float], waiting: Iterable[ShareKey]) -> list[dict[str, Any]]:
        """Return each tenant's weight, due part and got part. Tenants without work in the last minute are left out."""
        windows = [self._sums(now_s - window_s) for window_s in WINDOWS_S]
        waiting = set(waiting)
        rows = []
        for key in sorted({*windows[-1], *waiting}):
            row: dict[str, Any] = {
                "tenant": key.tenant,
                "on": "accelerators" if key.accelerated else "cpu",
                "weight": weights.get(key.tenant, 1),
            }
            for window_s, got in zip(WINDOWS_S, windows, strict=True):
                rivals = {each for each in {*got, *waiting} if each.accelerated == key.accelerated}
                total, weight = sum(got.get(each, 0.0) for each in rivals), weights.get(key.tenant, 1)
                due = weight / sum(weights.get(each.tenant, 1) for each in rivals) if key in rivals else None
                row[f"due_{window_s}s"] = due
                row[f"got_{window_s}s"] = got.get(key, 0.0) / total if total else None
            rows.append(row)
        return rows

    def _sums(self, since_s: float) -> dict[ShareKey, float]:
        sums: dict[ShareKey, float] = {}
        for sample in reversed(self._samples):
            if sample.at_s < since_s:
                break
            for key, share in sample.busy.items():
                sums[key] = sums.get(key, 0.0) + share
        return sums


class TenantShareSampler:
    """Samples the scheduler's state on a timer of the event loop, while there are calls."""

    def __init__(self, scheduler: Scheduler, is_active: Callable[[], bool]) -> None:
        self._scheduler = scheduler
        self._is_active = is_active
        self._shares = TenantShares()
        self._random = Random(0)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(SAMPLE_INTERVAL_S, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def rows(self) -> list[dict[str, Any]]:
        """Return the tenants' table of the status."""
        registry = self._scheduler.registry
        waiting = [ShareKey(flow.key.tenant, flow.spec.share != 0) for flow in registry.flows.values() if flow.queued]
        return self._shares.rows(self._loop.time(), registry.tenant_weights, waiting)

    def _tick(self) -> None:
        active = self._is_active()
        pause_s = self._random.uniform(0.5, 1.5) * SAMPLE_INTERVAL_S if active else _IDLE_INTERVAL_S
        self._timer = self._loop.call_later(pause_s, self._tick)
        if active:
            self._shares.sample(self._loop.time(), self._busy())

    def _busy(self) -> Iterator[tuple[ShareKey, float]]:
        for sandbox in self._scheduler.pool.sandboxes.values():
            if sandbox.state is BUSY:
                share = sandbox.slice.request * len(sandbox.devices) if sandbox.slice is not None else 1.0
                yield ShareKey(sandbox.flow.key.tenant, sandbox.device.spec.kind != CPU), share
