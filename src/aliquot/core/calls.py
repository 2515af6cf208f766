"""The invocations that have not ended, and how they end, or return to their queue when their node is lost."""

from aliquot.core.commands import Command, Fail
from aliquot.core.errors import EventError
from aliquot.core.flow import Flow
from aliquot.core.lifecycle import BUSY, InvocationChange
from aliquot.core.pool import Pool
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.waiting import admit, all_waiting, put_back, withdraw


class Calls:
    """The open invocations by name."""

    def __init__(self, pool: Pool, outbox: list[Command]) -> None:
        self.open: dict[str, Invocation] = {}
        self._pool = pool
        self._outbox = outbox

    def withdraw(self, invocation: Invocation, *, now: float) -> None:
        """End an invocation that has not been dispatched."""
        del self.open[invocation.id]
        invocation.change(InvocationChange.END, now)
        withdraw(invocation)

    def end(self, invocation: Invocation, *, now: float) -> None:
        """End an invocation that is in flight."""
        invocation.change(InvocationChange.END, now)
        del self.open[invocation.id]
        self._leave(invocation, now=now)

    def settle(self, flow: Flow, *, now: float) -> None:
        """Queue invocations that were held back, and start keep-alive if the flow is idle."""
        if flow.held_back:
            admit(flow)
        if flow.idle and not flow.closed:
            self._pool.flow_idled(flow, now=now)

    def fail_queued(self, flow: Flow, reason: str, *, now: float) -> None:
        for invocation in all_waiting(flow):
            self.withdraw(invocation, now=now)
            self._outbox.append(Fail(invocation.id, reason))

    def lose(self, sandbox: Sandbox, reason: str, *, now: float) -> None:
        """Drop a sandbox that is gone, and fail its invocation."""
        invocation = sandbox.invocation
        self._pool.drop(sandbox)
        if invocation is not None:
            self._fail(invocation, reason, now=now)

    def lose_with_node(self, sandbox: Sandbox, reason: str, *, now: float) -> None:
        """Drop a sandbox that is gone with its node. An invocation that it did not run yet returns to its queue."""
        invocation, ran = sandbox.invocation, sandbox.state is BUSY
        self._pool.drop(sandbox)
        if invocation is not None:
            self._return_or_fail(invocation, reason, now=now, ran=ran)

    def stop(self, sandbox: Sandbox, reason: str, *, now: float) -> None:
        """Stop a sandbox, and fail its invocation if it runs, or return it to its queue if it does not run yet."""
        invocation, ran = sandbox.invocation, sandbox.state is BUSY
        self._pool.stop(sandbox, reason)
        if invocation is not None:
            self._return_or_fail(invocation, reason, now=now, ran=ran)

    def _return_or_fail(self, invocation: Invocation, reason: str, *, now: float, ran: bool) -> None:
        flow = invocation.flow
        if ran or flow.closed:
            self._fail(invocation, reason, now=now)
            return
        invocation.change(InvocationChange.RETURN, now)
        self._leave(invocation, now=now)
        invocation.sandbox = None
        put_back(flow, invocation)

    def _fail(self, invocation: Invocation, reason: str, *, now: float) -> None:
        self.end(invocation, now=now)
        self._outbox.append(Fail(invocation.id, reason))
        self.settle(invocation.flow, now=now)

    def _leave(self, invocation: Invocation, *, now: float) -> None:
        """Free the slots of an invocation that was in flight."""
        if invocation.sandbox is None:
            raise EventError(f"ends before it was dispatched: {invocation.describe()}")
        flow = invocation.flow
        invocation.free_slots()
        flow.in_flight -= 1
        flow.last_serviced = now
        if not flow.closed:
            flow.domain.policy.finished(flow, invocation, flow.domain.view)
