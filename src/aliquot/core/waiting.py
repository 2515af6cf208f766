"""Queue waiting invocations, and hold back those that wait for more than a place.

A function may limit its number of sandboxes (`instances`). At most that many of its invocations are queued and in
flight together, or so many batches of them. The others are held back, where policies do not see them. A fair policy
stops flows that run ahead of a queued invocation, and an invocation that waits only for its own function must not cause
that. For the same reason the invocations of a function are held back while it fits on no device, because a node was
lost or gets no work.
"""

from itertools import takewhile
from math import inf

from aliquot.core.flow import Flow
from aliquot.core.records import Invocation


def enqueue(flow: Flow, invocation: Invocation) -> None:
    """Queue the invocation, or hold it back if its function is at its limit or fits on no device now."""
    if (flow.spec.instances is not None or flow.misfit is not None) and (flow.held_back or not _may_queue(flow)):
        flow.held_back[invocation.id] = invocation
    else:
        append(flow, invocation)


def admit(flow: Flow) -> None:
    """Queue as many of the invocations held back as there are instances for, in order."""
    while flow.held_back and _may_queue(flow):
        append(flow, flow.held_back.popitem(last=False)[1])


def hold_back(flow: Flow) -> None:
    """Hold back the latest invocations of a flow whose function has fewer instances than before, or fits nowhere."""
    while flow.queued and _has_too_many(flow):
        last = next(reversed(flow.queue.values()))
        _take_out(flow, last)
        flow.held_back[last.id] = last
        flow.held_back.move_to_end(last.id, last=False)


def withdraw(invocation: Invocation) -> None:
    """Remove an invocation that has not been dispatched."""
    flow = invocation.flow
    if flow.promised.pop(invocation.id, None) is not None:
        return  # the plan has let it go
    if flow.held_back.pop(invocation.id, None) is None:
        _take_out(flow, invocation)


def all_waiting(flow: Flow) -> list[Invocation]:
    """Return the queued invocations, then those held back, then those in the plan."""
    return [*flow.queue.values(), *flow.held_back.values(), *flow.promised.values()]


def unqueue(flow: Flow, invocation: Invocation) -> None:
    """Take an invocation out of its flow's queue. The caller calls the policy's hook."""
    domain = flow.domain
    del flow.queue[invocation.id]
    flow.queued -= 1
    domain.queued -= 1
    if domain.tenant_slots is not None:
        domain.tenant_slots.remove(invocation)


def take_head(flow: Flow) -> Invocation:
    """Take the first invocation out of its flow's queue. The caller calls the policy's hook."""
    invocation = flow.queue.popitem(last=False)[1]
    flow.queued -= 1
    domain = flow.domain
    domain.queued -= 1
    if domain.tenant_slots is not None:
        domain.tenant_slots.remove(invocation)
    return invocation


def put_back(flow: Flow, invocation: Invocation) -> None:
    """Queue an invocation that was dispatched or planned and did not run, before those of its flow that arrived later.

    Of several that return at once, the latest is put back first, because the flow may have to hold some of them back.
    """
    queue = flow.queue
    earlier = list(takewhile(lambda other: other.number < invocation.number, queue.values()))
    queue[invocation.id] = invocation
    for first in (invocation, *reversed(earlier)):
        queue.move_to_end(first.id, last=False)
    append(flow, invocation)  # it keeps its place in the queue
    if flow.misfit is not None or flow.batches is not None or flow.spec.instances is not None:
        hold_back(flow)
        admit(flow)


def queue_in_order(flow: Flow, invocation: Invocation) -> None:
    """Queue an invocation whose promise was broken, among those that wait, in the order of arrival.

    Policies count on this order. At the end of the queue it would never be chosen by those that look for its number.
    """
    held = flow.held_back
    if held and next(iter(held.values())).number < invocation.number:
        later = [other.id for other in held.values() if other.number > invocation.number]
        held[invocation.id] = invocation
        for name in later:
            held.move_to_end(name)
        admit(flow)
        return
    put_back(flow, invocation)
    if flow.spec.instances is not None:
        hold_back(flow)
        admit(flow)


def _may_queue(flow: Flow) -> bool:
    return flow.misfit is None and (flow.spec.instances is None or flow.queued < room_in_queue(flow))


def _has_too_many(flow: Flow) -> bool:
    return flow.misfit is not None or (flow.spec.instances is not None and flow.queued > room_in_queue(flow))


def room_in_queue(flow: Flow) -> float:
    """Return how many invocations of the flow may be queued, because instances or whole batches are free for them."""
    spec = flow.spec
    if spec.instances is None:
        return inf
    pinned = sum(sandbox.lane is not None and sandbox.invocation is None for sandbox in flow.sandboxes.values())
    return (spec.instances - flow.in_flight + flow.riders - pinned) * spec.batch


def append(flow: Flow, invocation: Invocation) -> None:
    """Add an invocation to the end of its flow's queue."""
    flow.queue[invocation.id] = invocation
    flow.queued += 1
    domain = flow.domain
    domain.queued += 1
    if domain.tenant_slots is not None:
        domain.tenant_slots.enqueue(invocation)
    domain.policy.enqueued(flow, invocation, domain.view)


def _take_out(flow: Flow, invocation: Invocation) -> None:
    unqueue(flow, invocation)
    flow.domain.policy.withdrawn(flow, invocation, flow.domain.view)
