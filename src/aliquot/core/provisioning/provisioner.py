"""Start sandboxes before any call needs them: for a forecast, for the operator, for a plan, or for `warm`.

A sandbox that was started ahead takes no slot and no turn of its flow. It lives in memory that nobody uses, and makes
room before all others, even while it starts. So a wrong forecast changes no other sandbox. All unused sandboxes on a
device take at most 30 % of its memory, and one tenant's at most half of that.
"""

from collections.abc import Iterable
from itertools import islice

from aliquot.core.clock import between
from aliquot.core.commands import Purpose
from aliquot.core.device import Device
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Expiry, ExpiryAction
from aliquot.core.lifecycle import STARTING
from aliquot.core.pool import Pool
from aliquot.core.records import Sandbox

MAX_UNUSED_PARTS, PARTS = 3, 10  # unused sandboxes take at most 3/10 of a device's or a host's memory
TENANT_DIVISOR = 2  # one tenant's take at most half of that
MAX_FLOWS_HELD_PER_STEP = 4


class Provisioner:
    """Starts sandboxes ahead, as far as their rights allow."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._failed: dict[int, None] = {}  # flows whose last start ahead was lost

    def start(
        self, flow: Flow, sandboxes: int, reason: str, *, now: float, purpose: Purpose = Purpose.HOLD
    ) -> list[Sandbox]:
        """Start sandboxes until the flow has so many, as far as there is room, and return the new ones."""
        started: list[Sandbox] = []
        if flow.closed or flow.misfit is not None or flow.index in self._failed:
            return started
        limit = flow.spec.instances
        wanted = sandboxes if limit is None else min(sandboxes, limit)
        while len(flow.sandboxes) < wanted and (devices := _place(flow)) is not None:
            started.append(self._pool.start_ahead(flow, devices, purpose, reason, now=now))
        return started

    def hold(self, flow: Flow, *, now: float) -> None:
        """Start sandboxes of a flow until it has as many as its function declares. Without room it is tried again."""
        warm = flow.spec.warm
        self._pool.short_flows.pop(flow.index, None)
        if warm and not flow.closed:
            self.start(flow, warm, f"{warm} are held ready", now=now)
            if len(flow.sandboxes) < warm and flow.index not in self._failed:
                self._pool.short_flows[flow.index] = flow

    def hold_next(self, *, now: float) -> None:
        """Hold sandboxes of flows that have fewer than declared. Flows take turns, a few in each step."""
        for index in list(islice(self._pool.short_flows, MAX_FLOWS_HELD_PER_STEP)):
            self.hold(self._pool.short_flows[index], now=now)

    def expire_flow(self, flow: Flow, expiry: Expiry, *, now: float) -> None:
        """Carry out the keep-alive action of an idle flow."""
        if expiry.action is ExpiryAction.START:
            self.start(flow, expiry.sandboxes, expiry.reason, now=now)
        self._pool.expire_flow(flow, expiry, now=now)

    def expire_sandbox(self, sandbox: Sandbox, expiry: Expiry) -> None:
        """Carry out the keep-alive action of an idle sandbox, unless it is held ready."""
        if len(sandbox.flow.sandboxes) > sandbox.flow.spec.warm:
            self._pool.expire(sandbox, expiry.action, expiry.reason)
        else:
            sandbox.expiry = None

    def stop(self, sandbox: Sandbox, reason: str) -> None:
        """Stop a sandbox that was started ahead and is no longer wanted."""
        self._pool.stop(sandbox, reason)

    def ready(self, sandbox: Sandbox, *, now: float) -> None:
        """Learn from a sandbox that is ready how long its start took."""
        flow = sandbox.flow
        if sandbox.state is STARTING and sandbox.began is not None:
            flow.record_start(between(sandbox.began, now))
            if sandbox.invocation is not None:
                self.succeeded(flow)

    def lost(self, sandbox: Sandbox) -> None:
        """Start no more sandboxes of a flow ahead after one was lost unused, until one has started for a call."""
        if sandbox.unused:
            self._failed[sandbox.flow.index] = None

    def succeeded(self, flow: Flow) -> None:
        """Start sandboxes of the flow ahead again, because one has started for a call or its function is new."""
        if self._failed and flow.index in self._failed:
            del self._failed[flow.index]
            if flow.spec.warm:
                self._pool.short_flows[flow.index] = flow


def _place(flow: Flow) -> tuple[Device, ...] | None:
    """Return devices with free room for another sandbox of the flow, or None. Nothing is evicted for it."""
    view = flow.domain.view
    for device in view.candidates(flow):
        if not view.fits(flow, device):
            continue
        devices = (device, *view.others(flow, device)) if flow.spec.device_count > 1 else (device,)
        known = tuple(each for each in devices if isinstance(each, Device))
        if len(known) == flow.spec.device_count and all(_has_room(flow, each) for each in known):
            return known
    return None


def _has_room(flow: Flow, device: Device) -> bool:
    spec, host = flow.spec, device.host
    if spec.memory_bytes > device.free_bytes or device.pool_full or host.lacks(spec.host_bytes):
        return False
    starting = sum(sandbox.state is STARTING for sandbox in device.unused.values())
    if starting >= max(1, device.spec.concurrency // 2):
        return False
    tenant = flow.key.tenant
    in_device = _within(
        spec.memory_bytes, ((s, s.bytes) for s in device.unused.values()), device.spec.memory_bytes, tenant
    )
    return in_device and _within(spec.host_bytes, ((s, s.host_bytes) for s in host.unused.values()), host.limit, tenant)


def _within(needed: int, unused: Iterable[tuple[Sandbox, int]], limit: int | None, tenant: str) -> bool:
    """Return whether so many more bytes of unused sandboxes stay within the parts of all and of one tenant."""
    if limit is None or not needed:
        return True
    total = own = needed
    for sandbox, size in unused:
        total += size
        own += size if sandbox.flow.key.tenant == tenant else 0
    most = limit * MAX_UNUSED_PARTS // PARTS
    return total <= most and own <= most // TENANT_DIVISOR
