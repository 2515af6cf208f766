"""Invocations that wait: in their flow's queue, or behind it while the flow has as many under way as it may.

A function may bound its own sandboxes (`instances`). Then no more of its invocations are ever queued and in flight
together; the others are held back, out of the policies' sight. To a policy, whoever is queued and not served is kept
waiting by others, who must not get too far ahead; those held back are kept waiting by nobody but their own function.
"""

from aliquot.core.records import Flow, Invocation


def enqueue(flow: Flow, invocation: Invocation) -> None:
    if flow.spec.instances is not None and (flow.held_back or not _has_instance(flow)):
        flow.held_back[invocation.id] = invocation
    else:
        _show(flow, invocation)


def admit(flow: Flow) -> None:
    """As many of those held back as there are instances for now, in order."""
    while flow.held_back and _has_instance(flow):
        _show(flow, flow.held_back.popitem(last=False)[1])


def hold_back(flow: Flow) -> None:
    """The function may have fewer instances than before: those that came last wait behind the queue."""
    while flow.queued and flow.spec.instances is not None and flow.queued + flow.in_flight > flow.spec.instances:
        last = next(reversed(flow.queue.values()))
        _hide(flow, last)
        flow.held_back[last.id] = last
        flow.held_back.move_to_end(last.id, last=False)


def withdraw(invocation: Invocation) -> None:
    """Undispatched."""
    flow = invocation.flow
    if flow.held_back.pop(invocation.id, None) is None:
        _hide(flow, invocation)


def all_waiting(flow: Flow) -> list[Invocation]:
    return [*flow.queue.values(), *flow.held_back.values()]


def _has_instance(flow: Flow) -> bool:
    instances = flow.spec.instances
    return instances is None or flow.queued + flow.in_flight < instances


def _show(flow: Flow, invocation: Invocation) -> None:
    flow.queue[invocation.id] = invocation
    flow.queued += 1
    domain = flow.domain
    domain.queued += 1
    domain.policy.enqueued(flow, invocation, domain.view)


def _hide(flow: Flow, invocation: Invocation) -> None:
    del flow.queue[invocation.id]
    flow.queued -= 1
    flow.domain.queued -= 1
    flow.domain.policy.withdrawn(flow, invocation, flow.domain.view)
