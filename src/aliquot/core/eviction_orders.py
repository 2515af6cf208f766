"""Add idle sandboxes to the orders in which they are evicted, and take them out again."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aliquot.core.records import Sandbox


def make_stoppable(sandbox: "Sandbox", pool_slots: int | None, *, now: float) -> None:
    """List an idle sandbox among those that may be stopped, if the pool or the host's memory is bounded."""
    if pool_slots is not None:
        for device in sandbox.devices:
            device.pool_order.add(sandbox.pool_candidate, now=now)
    sandbox.host.add_idle(sandbox, now=now)


def make_unstoppable(sandbox: "Sandbox", pool_slots: int | None) -> None:
    """Take a sandbox out of the lists of those that may be stopped."""
    sandbox.host.remove_idle(sandbox)
    if pool_slots is not None:
        for device in sandbox.devices:
            device.pool_order.remove(sandbox.pool_candidate)


def make_unevictable(sandbox: "Sandbox", pool_slots: int | None) -> None:
    """Take a sandbox out of all eviction orders."""
    make_unstoppable(sandbox, pool_slots)
    for device in sandbox.devices:
        device.memory_order.remove(sandbox)
