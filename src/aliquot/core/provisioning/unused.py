"""Sandboxes that were started ahead and have served no call yet. They make room before all others."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aliquot.core.lifecycle import STARTING

if TYPE_CHECKING:
    from aliquot.core.flow import Flow
    from aliquot.core.records import Sandbox


def mark_unused(sandbox: "Sandbox") -> None:
    """List a sandbox that starts ahead on its devices and its host. Its bytes can be evicted even while it starts."""
    sandbox.unused = True
    sandbox.host.unused[sandbox.id] = sandbox
    for device in sandbox.devices:
        device.unused[sandbox.id] = sandbox
        device.evictable_bytes += sandbox.bytes


def end_unused(sandbox: "Sandbox", *, used: bool = False) -> None:
    """Count a sandbox that was started ahead as any other, because it is used, swapped out or gone."""
    sandbox.unused = False
    sandbox.flow.earnings.ended(used=used)
    del sandbox.host.unused[sandbox.id]
    for device in sandbox.devices:
        del device.unused[sandbox.id]
        if sandbox.state is STARTING:
            device.evictable_bytes -= sandbox.bytes


def first_unused(listed: "Mapping[int, Sandbox]", flow: "Flow") -> "Sandbox | None":
    """Return the unused sandbox that makes room for the flow first: its own tenant's, then the oldest."""
    if not listed:
        return None
    tenant = flow.key.tenant
    own = (sandbox for sandbox in listed.values() if sandbox.flow.key.tenant == tenant)
    return next(own, None) or next(iter(listed.values()))
