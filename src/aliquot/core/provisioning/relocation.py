"""Move a sandbox from one device to another in the records of the core.

While it moves, its memory, its slot and its share are reserved on the other device, whatever happens to it meanwhile:
it may get a call, end one, or be swapped out. When it has arrived, everything that it has is counted there, and the
reservation ends. Calls are not promised on a device while a sandbox leaves it or comes to it.
"""

from typing import TYPE_CHECKING

from aliquot.core.eviction_orders import make_stoppable
from aliquot.core.lifecycle import BUSY
from aliquot.core.places import place_of
from aliquot.core.run_memory import count_sandbox, discount_sandbox

if TYPE_CHECKING:
    from aliquot.core.device import Device
    from aliquot.core.pool import Pool
    from aliquot.core.records import Sandbox
    from aliquot.core.slices import SliceAllocator


class SandboxMove:
    """A sandbox on its way to another device, with what is reserved for it there."""

    __slots__ = ("bytes", "number", "sandbox", "share", "source", "to")

    def __init__(self, number: int, sandbox: "Sandbox", to: "Device") -> None:
        """Reserve room on the device. The caller has checked that there is enough."""
        spec = sandbox.flow.spec
        self.number = number
        self.sandbox = sandbox
        self.to = to
        self.bytes = spec.memory_bytes + spec.run_bytes
        self.share = to.default_share if spec.share is None else min(spec.share, 1.0)
        self.source = sandbox.device
        sandbox.move = self.source.moves[number] = to.moves[number] = self
        to.resident_bytes += self.bytes
        to.take_slot(self.share, sandbox.flow.key.tenant)

    def end(self) -> None:
        """Give back what is reserved."""
        self.sandbox.move = None
        del self.to.moves[self.number], self.source.moves[self.number]
        self.to.resident_bytes -= self.bytes
        self.to.free_slot(self.share, self.sandbox.flow.key.tenant)
        self.to.note_freed()


def relocate(sandbox: "Sandbox", to: "Device", pool: "Pool", slices: "SliceAllocator", *, now: float) -> None:
    """Count a sandbox with all that it has on another device of the same kind and node."""
    source, idle, session = sandbox.device, sandbox.idle, sandbox.session
    if idle:
        pool.remove_idle(sandbox)
    source.memory_order.forget(sandbox)
    source.pool_order.forget(sandbox.pool_candidate)
    slices.end_run(sandbox)
    if sandbox.flow.sandboxes_on:
        discount_sandbox(sandbox)
    _count_on(sandbox, source, -1)
    sandbox.device, sandbox.devices, sandbox.place = to, (to,), place_of([to.spec])
    _count_on(sandbox, to, 1)
    if sandbox.flow.spec.one_per_device:
        count_sandbox(sandbox)
    if sandbox.state is BUSY:
        slices.begin_run(sandbox)
    source.note_freed()
    view = sandbox.flow.domain.view
    for invocation in sandbox.in_flight:
        sandbox.flow.domain.policy.moved(sandbox.flow, invocation, source, to, view)
    if idle:
        pool.add_idle(sandbox, now=now)
        if pool.slots is not None or sandbox.host.limit is not None:
            make_stoppable(sandbox, pool.slots, now=now)
        if session is not None:
            pool.keep(sandbox, session, now=now)
        if sandbox.session is None and sandbox.deferred_expiry is not None:
            pool.expire(sandbox, sandbox.deferred_expiry)


def _count_on(sandbox: "Sandbox", device: "Device", sign: int) -> None:
    """Count the memory and the slots of a sandbox on a device, or no longer."""
    if sign > 0:
        device.sandboxes[sandbox.id] = sandbox
    else:
        del device.sandboxes[sandbox.id]
    device.resident_bytes += sign * (sandbox.bytes * sandbox.holds_memory + sandbox.run_bytes)
    tenant = sandbox.flow.key.tenant
    for _ in range(sandbox.slots_taken):
        share = sandbox.share_taken / sandbox.slots_taken
        if sign > 0:
            device.take_slot(share, tenant)
        else:
            device.free_slot(share, tenant)
