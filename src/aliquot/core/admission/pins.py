"""Pinned sandboxes: the blocks of a lane count on them, so they are neither idle nor evicted."""

from aliquot.core.admission.lanes import Lane
from aliquot.core.pool import Pool
from aliquot.core.records import Sandbox
from aliquot.core.waiting import admit, hold_back


def pin(pool: Pool, lane: Lane, sandbox: Sandbox) -> None:
    """Keep a sandbox for the blocks of a lane, until it is unpinned."""
    if sandbox.invocation is None:
        pool.remove_idle(sandbox)
        if sandbox.host_bytes:
            sandbox.host.occupy(sandbox)
    sandbox.lane = lane
    sandbox.unload_when_ready = False
    sandbox.expiry = sandbox.deferred_expiry = None
    lane.sandboxes[sandbox.flow.index] = sandbox
    if sandbox.flow.spec.instances is not None:
        hold_back(sandbox.flow)


def unpin(pool: Pool, sandbox: Sandbox, *, now: float) -> None:
    """Let others have the sandbox again. It becomes idle, now or when its run ends."""
    flow, lane = sandbox.flow, sandbox.lane
    sandbox.lane = None
    if lane is not None:
        lane.sandboxes.pop(flow.index, None)
    if sandbox.invocation is None:
        pool.vacate(sandbox)
        pool.release(sandbox, now=now)
    if flow.spec.instances is not None and not flow.closed:
        admit(flow)
