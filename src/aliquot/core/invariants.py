"""Check the scheduler's state: recompute every count from scratch and compare.

Every test checks after every step, and so does `aliquot simulate --check`. It is too slow for a loaded service.
"""

from collections import Counter
from collections.abc import Iterator

from aliquot.core import run_memory
from aliquot.core.admission import invariants as admission
from aliquot.core.batches import Batch
from aliquot.core.device import Device
from aliquot.core.device_index import DeviceClass
from aliquot.core.errors import InvariantError
from aliquot.core.flow import Flow
from aliquot.core.lifecycle import InvocationState, SandboxState
from aliquot.core.nodes import Node
from aliquot.core.prefetching import invariants as prefetching
from aliquot.core.provisioning import invariants as provisioning
from aliquot.core.records import Sandbox
from aliquot.core.scheduler import Scheduler
from aliquot.core.view import SHARE_TOLERANCE
from aliquot.core.waiting import room_in_queue


def check(scheduler: Scheduler) -> None:
    """Raise `InvariantError` with every violation, if there are any."""
    wrong = list(violations(scheduler))
    if wrong:
        raise InvariantError(f"at {scheduler.now}: " + "; ".join(wrong))


def violations(scheduler: Scheduler) -> Iterator[str]:
    """Yield a text for each count that differs from the recomputed one."""
    for device in scheduler.registry.devices.values():
        yield from _device(device, scheduler)
    for flow in scheduler.registry.flows.values():
        yield from _flow(flow)
    for sandbox in scheduler.pool.sandboxes.values():
        yield from _sandbox(sandbox, scheduler)
    for node in scheduler.registry.nodes.values():
        yield from _host(node, scheduler)
    yield from _tenant_slots(scheduler)
    yield from _kept(scheduler)
    yield from _index(scheduler)
    yield from prefetching.violations(scheduler.prefetcher)
    yield from provisioning.violations(scheduler.registry.devices.values(), scheduler.pool)
    yield from admission.violations(scheduler.admitter.plan, scheduler.pool, scheduler.registry.flows)
    for domain in scheduler.registry.domains.values():
        queued = sum(flow.queued for flow in scheduler.registry.flows.values() if flow.domain is domain)
        if queued != domain.queued:
            yield f"domain {domain.name} counts {domain.queued} queued, there are {queued}"
        yield from domain.policy.violations(domain.view)
    for invocation in scheduler.invocations.values():
        flow = invocation.flow
        waits = (invocation.id in flow.queue) + (invocation.id in flow.held_back) + (invocation.id in flow.promised)
        if waits != (invocation.state is InvocationState.QUEUED) or invocation.state is InvocationState.ENDED:
            yield f"is {'' if waits else 'not '}in its queue: {invocation.describe()}"


def _device(device: Device, scheduler: Scheduler) -> Iterator[str]:
    name = device.spec.name
    coming = [move for move in device.moves.values() if move.to is device]
    in_flight = len(coming) + sum(sandbox.slots_taken for sandbox in device.sandboxes.values())
    shares = sum(sandbox.share_taken for sandbox in device.sandboxes.values()) + sum(move.share for move in coming)
    slots, extra = device.spec.concurrency, device.spec.extra_slots
    pooled = any(domain.view.pools_slots for domain in scheduler.registry.domains.values())
    if pooled:
        slots = sum(each.spec.concurrency for each in scheduler.registry.devices.values())
    if device.running != in_flight or device.running > slots + extra:
        yield f"{name} counts {device.running} running of {slots} and {extra} extra, there are {in_flight}"
    if abs(device.shares_used - shares) > SHARE_TOLERANCE or (
        not pooled and shares > 1 + extra / slots + SHARE_TOLERANCE
    ):
        yield f"{name} counts {device.shares_used} of its compute used, it is {shares}"
    resident = sum(s.bytes * s.holds_memory + s.run_bytes for s in device.sandboxes.values())
    resident += sum(move.bytes for move in coming)
    if device.resident_bytes != resident or device.free_bytes < 0:
        yield f"{name} ({device.spec.memory_bytes} bytes) counts {device.resident_bytes} resident, there are {resident}"
    evictable = sum(s.evictable_bytes for s in device.sandboxes.values())
    if device.evictable_bytes != evictable:
        yield f"{name} counts {device.evictable_bytes} evictable bytes, there are {evictable}"
    pool_slots = scheduler.pool.slots
    if pool_slots is not None and device.spec.memory_bytes is not None and len(device.sandboxes) > pool_slots:
        yield f"{name} has {len(device.sandboxes)} sandboxes in {pool_slots} pool slots"


def _host(node: Node, scheduler: Scheduler) -> Iterator[str]:
    host, name = node.host, f"node '{node.spec.name}'"
    sandboxes = [s for s in scheduler.pool.sandboxes.values() if s.device.node is node]
    claimed = sum(sandbox.host_bytes for sandbox in sandboxes)
    busy: Counter[str] = Counter()
    for sandbox in sandboxes:
        if not sandbox.idle:
            busy[sandbox.flow.key.tenant] += sandbox.host_bytes
    if (host.claimed, host.busy, host.busy_by_tenant) != (claimed, busy.total(), dict(+busy)):
        yield f"{name} counts {host.claimed} bytes claimed and {host.busy_by_tenant} in use, not {claimed} and {busy}"
    if host.kept_bytes != sum(s.host_bytes for s in sandboxes if s.session is not None):
        yield f"{name}: sessions count {host.kept_bytes} bytes of the host kept"
    if any(device.node is not node or bool(device.slots) != node.open for device in node.devices.values()):
        yield f"{name} is {'open' if node.open else 'closed'}, and a device of it is not"
    if host.limit is None:
        return
    if claimed > host.limit:
        yield f"sandboxes claim {claimed} bytes of the {host.limit} of {name}"
    idle = sorted(s.id for s in sandboxes if s.idle and s.session is None)
    if sorted(sandbox.id for sandbox in host.idle()) != idle:
        yield f"{name} may stop {sorted(s.id for s in host.idle())}, idle are {idle}"


def _tenant_slots(scheduler: Scheduler) -> Iterator[str]:
    slots = scheduler.registry.tenant_slots
    held: Counter[str] = Counter()
    for device in scheduler.registry.devices.values():
        if device.spec.extra_slots:
            held.update(s.flow.key.tenant for s in device.sandboxes.values() for _ in range(s.slots_taken))
            held.update(move.sandbox.flow.key.tenant for move in device.moves.values() if move.to is device)
    if slots.held != held or slots.running != held.total():
        yield f"tenants are counted to hold the slots {slots.held}, they hold {held}"
    queued = sorted(
        invocation
        for flow in scheduler.registry.flows.values()
        if flow.domain.tenant_slots is not None
        for invocation in flow.queue
    )
    if sorted(invocation for own in slots.queued.values() for invocation in own) != queued:
        yield f"tenants are counted to have {slots.queued} queued, it is {queued}"


def _flow(flow: Flow) -> Iterator[str]:
    if flow.queued != len(flow.queue):
        yield f"{flow.key} counts {flow.queued} queued, there are {len(flow.queue)}"
    bound = flow.spec.instances
    current = sum(sandbox.retired is None for sandbox in flow.sandboxes.values())
    if bound is not None and current > bound:
        yield f"{flow.key} has {current} sandboxes, it may have {bound}"
    if flow.misfit is not None and flow.queued:
        yield f"{flow.key} has {flow.queued} queued that fit nowhere"
    if flow.held_back and flow.misfit is None and flow.queued < room_in_queue(flow):
        yield f"{flow.key} holds {len(flow.held_back)} back without a reason"
    yield from run_memory.violations(flow)
    in_flight = sum(len(sandbox.in_flight) for sandbox in flow.sandboxes.values())
    riders = in_flight - sum(sandbox.slots_taken for sandbox in flow.sandboxes.values())
    if (flow.in_flight, flow.riders) != (in_flight, riders):
        yield f"{flow.key} counts {flow.in_flight} in flight and {flow.riders} riders, not {in_flight} and {riders}"
    idle = sorted(s.id for s in flow.sandboxes.values() if s.idle)
    listed = sorted(s.id for s in flow.idle_sandboxes())
    if idle != listed:
        yield f"{flow.key} has idle sandboxes {idle}, listed are {listed}"
    for on_device in flow.idle_by_device.values():
        for sandbox in on_device.resident.values():
            if sandbox.state is not SandboxState.WARM or sandbox.device is not on_device.device:
                yield f"listed as resident on {on_device.device.spec.name}: {sandbox.describe()}"


def _sandbox(sandbox: Sandbox, scheduler: Scheduler) -> Iterator[str]:
    invocation = sandbox.invocation
    if (sandbox.state is SandboxState.BUSY) and (invocation is None or invocation.state is not InvocationState.RUNNING):
        yield f"busy without a running invocation: {sandbox.describe()}"
    if invocation is not None and (
        invocation.sandbox is not sandbox or scheduler.invocations.get(invocation.id) is not invocation
    ):
        yield f"has an invocation that is not its own: {sandbox.describe()}, {invocation.describe()}"
    if invocation is not None and sandbox.state in {SandboxState.WARM, SandboxState.HOST_WARM}:
        yield f"has an invocation that is not started: {sandbox.describe()}, {invocation.describe()}"
    if sandbox.batch is not None:
        yield from _batch(sandbox, sandbox.batch)
    for ahead in sandbox.ahead:
        if sandbox.state is not SandboxState.BUSY or ahead.sandbox is not sandbox:
            yield f"is handed ahead to a sandbox that is not busy: {sandbox.describe()}, {ahead.describe()}"
        if ahead.state is not InvocationState.PREPARING or scheduler.invocations.get(ahead.id) is not ahead:
            yield f"is handed ahead and not waiting: {sandbox.describe()}, {ahead.describe()}"


def _batch(sandbox: Sandbox, batch: Batch) -> Iterator[str]:
    if batch.members[:1] != [sandbox.invocation] or sandbox.ahead:
        yield f"is not led by its invocation: the batch of {sandbox.describe()}"
    for member in batch.members:
        if (member.flow, member.sandbox, member.batch) != (sandbox.flow, sandbox, batch):
            yield f"does not belong to the batch of {sandbox.describe()}: {member.describe()}"
        if sandbox.invocation is not None and member.state is not sandbox.invocation.state:
            yield f"is not where the others of its batch are: {member.describe()}"


def _kept(scheduler: Scheduler) -> Iterator[str]:
    sessions = scheduler.pool.session_sandboxes
    kept = sorted(s.id for s in scheduler.pool.sandboxes.values() if s.session is not None)
    by_session = sorted(number for session in sessions.sessions.values() for number in session.kept)
    by_node = {number: s for node in scheduler.registry.nodes.values() for number, s in node.host.kept.items()}
    if not kept == by_session == sorted(by_node):
        yield f"sessions keep {by_session}, listed are {sorted(by_node)}, there are {kept}"
    for sandbox in by_node.values():
        if sandbox.state is not SandboxState.WARM or sandbox.invocation is not None:
            yield f"kept for a session without being idle and warm: {sandbox.describe()}"
    for flow in scheduler.registry.flows.values():
        count = sum(s.session is not None for s in flow.sandboxes.values())
        if flow.kept != count:
            yield f"{flow.key} counts {flow.kept} sandboxes kept for sessions, there are {count}"
    for device in scheduler.registry.devices.values():
        kept_bytes = {s.id: s.bytes for s in device.sandboxes.values() if s.session is not None}
        if sorted(device.kept) != sorted(kept_bytes) or device.kept_bytes != sum(kept_bytes.values()):
            yield f"{device.spec.name} counts {sorted(device.kept)} kept for sessions, there are {sorted(kept_bytes)}"
        if sessions.surplus(device) is not None:
            yield f"{device.spec.name}: sessions keep more than they may"


def _index(scheduler: Scheduler) -> Iterator[str]:
    index = scheduler.registry.index
    for own in index.classes.values():
        if any(d.spec.class_spec != own.spec or (d.listed is None) == index.listed for d in own.devices.values()):
            yield f"there is a device among those like {own.spec} that does not belong there"
        if index.listed:
            yield from _class(own)
    for group in index.groups.values() if index.listed else ():
        if sorted(group.idle) != sorted(device.index for device in group.devices.values() if not device.running):
            yield f"{group.node} lists {sorted(group.idle)} of kind {group.kind} as idle"
    for flow in scheduler.registry.flows.values():
        places = [] if flow.places is None else [idle.device.index for idle in flow.places.recent()]
        idle = [place.device.index for place in flow.idle_by_device.values() if place.resident or place.not_resident]
        if (flow.places is not None) != flow.domain.view.many or (
            flow.places is not None and sorted(places) != sorted(idle)
        ):
            yield f"{flow.key} is idle on {sorted(idle)}, listed are {sorted(places)}"


def _class(own: DeviceClass) -> Iterator[str]:
    devices = own.devices.values()
    free = sorted(device.index for device in devices if device.running < device.slots)
    listed = sorted(device.index for device in own.emptiest())
    if listed != free or own.free != len(free):
        yield f"devices {free} like {own.spec} have a free slot, listed are {listed}, counted {own.free}"
    taken = sum(max(device.running, device.shares_used * device.slots) for device in devices)
    if own.slots != sum(device.slots for device in devices) or abs(own.taken - taken) > SHARE_TOLERANCE:
        yield f"devices like {own.spec} count {own.taken} of {own.slots} slots taken, it is {taken}"
