"""The event with which the arrival of a call is reported to the scheduler."""

from aliquot.core.events import InvocationArrived
from aliquot.live.invocations.call import Call


def arrival_of(call: Call, flow: str, session: str | None, now_s: float) -> InvocationArrived:
    """Return the arrival of a call, with its limits or its place in an execution that has limits."""
    tenant, own_sandbox = call.namespace.name, bool(call.queue_entry)  # its start must be on disk before it runs
    if call.stage is not None:
        place = call.stage
        return InvocationArrived(
            call.id,
            tenant,
            flow,
            session=session,
            late=place.late,
            execution=place.execution,
            stage=place.stage,
            own_sandbox=own_sandbox,
        )
    if call.objective is None:
        return InvocationArrived(call.id, tenant, flow, session=session, own_sandbox=own_sandbox)
    limits = call.objective.limits
    return InvocationArrived(
        call.id,
        tenant,
        flow,
        call.objective.left_s(now_s - call.run.arrived_s),
        limits.cost,
        session,
        limits.late,
        limits.prefer,
        own_sandbox=own_sandbox,
    )
