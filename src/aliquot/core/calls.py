"""The invocations that have not ended, and how they end, or return to their queue when they cannot run."""

from collections.abc import Container, Sequence

from aliquot.core.admission.plan import Plan
from aliquot.core.admission.promises import Promises
from aliquot.core.batches import Batch
from aliquot.core.commands import Command, Complete, Fail, TakeBack
from aliquot.core.errors import EventError
from aliquot.core.flow import Flow
from aliquot.core.lifecycle import BUSY, END, InvocationChange
from aliquot.core.pool import Pool
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.waiting import admit, all_waiting, put_back, withdraw


class Calls:
    """The open invocations by name."""

    def __init__(self, pool: Pool, plan: Plan, promises: Promises, outbox: list[Command]) -> None:
        self.open: dict[str, Invocation] = {}
        self._pool = pool
        self._plan = plan
        self._promises = promises
        self._outbox = outbox

    def withdraw(self, invocation: Invocation, *, now: float) -> None:
        """End an invocation that has not been dispatched."""
        del self.open[invocation.id]
        invocation.change(END, now)
        if invocation.id in invocation.flow.promised:
            self._plan.withdraw(invocation)
        withdraw(invocation)
        self._end_stage(invocation, now=now)

    def end(self, invocation: Invocation, *, now: float) -> None:
        """End an invocation that is in flight."""
        invocation.change(END, now)
        del self.open[invocation.id]
        self._leave(invocation, now=now)
        self._end_stage(invocation, now=now)

    def _end_stage(self, invocation: Invocation, *, now: float) -> None:
        objective = invocation.objective
        if objective is not None and objective.stage is not None:
            self._plan.stage_ended(objective.stage, now)

    def complete(self, invocation: Invocation, *, now: float) -> None:
        """End an invocation that has run."""
        if invocation.objective is not None:
            self._plan.refund(invocation, (now - invocation.dispatched) / invocation.batch_size)
            self._promises.completed(invocation, now=now)
        self.end(invocation, now=now)
        self._outbox.append(Complete(invocation.id))

    def settle(self, flow: Flow, *, now: float) -> None:
        """Queue invocations that were held back, and start keep-alive if the flow is idle."""
        if flow.held_back:
            admit(flow)
        if not flow.queued and not flow.in_flight and not flow.closed and not flow.promised:
            self._pool.flow_idled(flow, now=now)

    def fail_queued(self, flow: Flow, reason: str, *, now: float) -> None:
        for invocation in all_waiting(flow):
            self.withdraw(invocation, now=now)
            self._outbox.append(Fail(invocation.id, reason))

    def lose(self, sandbox: Sandbox, reason: str, again: Container[str] = (), *, now: float) -> None:
        """Drop a sandbox that is gone, and fail its invocation. Those handed ahead have not begun, and return.

        So do members of its batch that may run `again`.
        """
        ahead, sandbox.ahead = sandbox.ahead, []
        in_flight = sandbox.in_flight
        self._pool.drop(sandbox)
        for invocation in reversed(in_flight):
            if invocation.id in again:
                self._run_again(invocation, reason, now=now)
            else:
                self._fail(invocation, reason, now=now)
        for each in ahead:
            self._return(each, reason, now=now)

    def lose_with_node(self, sandbox: Sandbox, reason: str, *, now: float) -> None:
        """Drop a sandbox that is gone with its node. An invocation that it did not run yet returns to its queue."""
        in_flight, ran = sandbox.in_flight, sandbox.state is BUSY
        sandbox.ahead = []
        self._pool.drop(sandbox)
        for invocation in reversed(in_flight):  # one handed ahead may have begun, too
            self._return_or_fail(invocation, reason, now=now, ran=ran)

    def stop(self, sandbox: Sandbox, reason: str, *, now: float) -> None:
        """Stop a sandbox, and fail its invocation if it runs, or return it to its queue if it does not run yet."""
        in_flight, ran = sandbox.in_flight, sandbox.state is BUSY
        sandbox.ahead = []
        self._pool.stop(sandbox, reason)
        for invocation in reversed(in_flight):  # one handed ahead may have begun, too
            self._return_or_fail(invocation, reason, now=now, ran=ran)

    # --- cancelled calls, and calls handed ahead (`ahead.py`) ---------------------------------------------

    def cancel(self, invocation: Invocation, sandbox: Sandbox, reason: str, *, now: float) -> None:
        """End an invocation that is in flight.

        If invocations are handed ahead in its sandbox, the shell must first find out which of them have begun.
        """
        if sandbox.ahead:
            invocation.cancelled = reason
            self._outbox.append(TakeBack(sandbox.id))
            return
        batch = invocation.batch
        self.end(invocation, now=now)
        self._outbox.append(Fail(invocation.id, reason))
        if batch is not None and batch.members:  # the others go on
            sandbox.invocation = batch.members[0]
            self.settle(invocation.flow, now=now)
            return
        sandbox.batch = None
        if sandbox.state is BUSY:  # running code can be stopped only with its process
            self._pool.stop(sandbox, f"invocation {invocation.id}: {reason}")
        else:
            self._pool.release(sandbox, now=now)
        self.settle(invocation.flow, now=now)

    def end_batch(self, batch: Batch, again: Container[str], *, now: float) -> None:
        """End all members of a batch that has run, except those that run again alone."""
        members = list(batch.members)
        for member in members:
            if member.id not in again:
                self.complete(member, now=now)
        for member in reversed(members):
            if member.id in again:
                self._run_again(member, "its batch failed and its function was removed", now=now)

    def begin_next(self, sandbox: Sandbox, *, now: float) -> None:
        """Let the next invocation handed ahead be the one that the sandbox runs. The shell has begun it already."""
        following = sandbox.ahead.pop(0)
        if sandbox.slice is not None and sandbox.invocation is not None:
            sandbox.invocation.pass_share(following)
        sandbox.invocation = following
        following.change(InvocationChange.RUN, now)
        if following.cancelled is not None:
            self.cancel(following, sandbox, following.cancelled, now=now)

    def take_back(self, sandbox: Sandbox, names: Sequence[str], *, now: float) -> None:
        """Return invocations to their queue that were handed ahead and have not begun, or end cancelled ones."""
        ahead = {invocation.id: invocation for invocation in sandbox.ahead}
        for name in names:
            if name not in ahead:
                raise EventError(f"{name} cannot be taken back from {sandbox.describe()}")
        sandbox.ahead = [invocation for invocation in sandbox.ahead if invocation.id not in names]
        for name in names:
            invocation = ahead[name]
            invocation.own_sandbox = True
            self._return(invocation, invocation.cancelled or "it was taken back", now=now)
        if names and sandbox.flow.ahead is not None:
            sandbox.flow.ahead.taken_back()
        running = sandbox.invocation
        if running is not None and running.cancelled is not None and not sandbox.ahead:
            self.cancel(running, sandbox, running.cancelled, now=now)

    def _return(self, invocation: Invocation, reason: str, *, now: float) -> None:
        """Return an invocation that has not begun to its queue, or end it if it was cancelled."""
        if invocation.cancelled is not None:
            self._fail(invocation, invocation.cancelled, now=now)
        else:
            self._return_or_fail(invocation, reason, now=now, ran=False)

    def _run_again(self, member: Invocation, reason: str, *, now: float) -> None:
        member.alone = True
        self._return_or_fail(member, reason, now=now, ran=False)

    def _return_or_fail(self, invocation: Invocation, reason: str, *, now: float, ran: bool) -> None:
        flow = invocation.flow
        if ran or flow.closed:
            self._fail(invocation, reason, now=now)
            return
        self._promises.lost(invocation, reason)
        invocation.change(InvocationChange.RETURN, now)
        self._leave(invocation, now=now)
        invocation.sandbox = None
        put_back(flow, invocation)

    def _fail(self, invocation: Invocation, reason: str, *, now: float) -> None:
        if invocation.cancelled is None:
            self._promises.lost(invocation, reason)
        self.end(invocation, now=now)
        self._outbox.append(Fail(invocation.id, reason))
        self.settle(invocation.flow, now=now)

    def _leave(self, invocation: Invocation, *, now: float) -> None:
        """Free the slots of an invocation that was in flight."""
        if invocation.sandbox is None:
            raise EventError(f"ends before it was dispatched: {invocation.describe()}")
        flow = invocation.flow
        if invocation.batch is None:
            invocation.free_slots()
        else:
            invocation.batch.leave(invocation)
        flow.in_flight -= 1
        flow.last_serviced = now
        if not flow.closed:
            flow.domain.policy.finished(flow, invocation, flow.domain.view)
