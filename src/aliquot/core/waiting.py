"""Queue waiting invocations, and hold back those that exceed their function's own limit.

A function may limit its number of sandboxes (`instances`). At most that many of its invocations are queued and in
flight together. The others are held back, where policies do not see them. A fair policy stops flows that run ahead of a
queued invocation, and an invocation that waits only for its own function must not cause that.
"""

from aliquot.core.flow import Flow
from aliquot.core.records import Invocation


def enqueue(flow: Flow, invocation: Invocation) -> None:
    """Queue the invocation, or hold it back if its function is at its limit."""
    if flow.spec.instances is not None and (flow.held_back or not _has_instance(flow)):
        flow.held_back[invocation.id] = invocation
    else:
        _append(flow, invocation)


def admit(flow: Flow) -> None:
    """Queue as many of the invocations held back as there are instances for, in order."""
    while flow.held_back and _has_instance(flow):
        _append(flow, flow.held_back.popitem(last=False)[1])


def hold_back(flow: Flow) -> None:
    """Hold back the latest invocations of a flow whose function has fewer instances than before."""
    while flow.queued and flow.spec.instances is not None and flow.queued + flow.in_flight > flow.spec.instances:
        last = next(reversed(flow.queue.values()))
        _take_out(flow, last)
        flow.held_back[last.id] = last
        flow.held_back.move_to_end(last.id, last=False)


def withdraw(invocation: Invocation) -> None:
    """Remove an invocation that has not been dispatched."""
    flow = invocation.flow
    if flow.held_back.pop(invocation.id, None) is None:
        _take_out(flow, invocation)


def all_waiting(flow: Flow) -> list[Invocation]:
    """Return the queued invocations and then those held back."""
    return [*flow.queue.values(), *flow.held_back.values()]


def unqueue(flow: Flow, invocation: Invocation) -> None:
    """Take an invocation out of its flow's queue. The caller calls the policy's hook."""
    domain = flow.domain
    del flow.queue[invocation.id]
    flow.queued -= 1
    domain.queued -= 1
    if domain.tenant_slots is not None:
        domain.tenant_slots.remove(invocation)


def _has_instance(flow: Flow) -> bool:
    instances = flow.spec.instances
    return instances is None or flow.queued + flow.in_flight < instances


def _append(flow: Flow, invocation: Invocation) -> None:
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
