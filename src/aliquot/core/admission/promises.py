"""Promises that are kept or broken. Each one ends once: with its call, or before it with `BreakPromise`."""

from typing import TYPE_CHECKING

from aliquot.core.admission.blocks import TOLERANCE_S
from aliquot.core.admission.records import Blame
from aliquot.core.commands import BreakPromise, Command
from aliquot.core.records import Invocation

if TYPE_CHECKING:
    from aliquot.core.admission.stages import PlannedExecution

COST_TOLERANCE = 1e-9  # of sums of products


class Promises:
    """Decides whether the promise of a call that ends was kept, and whom to blame otherwise."""

    def __init__(self, outbox: list[Command]) -> None:
        self._outbox = outbox
        self.kept = 0
        self.broken: dict[str, int] = dict.fromkeys(Blame, 0)
        self.broken_executions: list[PlannedExecution] = []  # whose other stages are still in the plan

    def completed(self, invocation: Invocation, *, now: float) -> None:
        """End the promise of a call that has run."""
        objective = invocation.objective
        if objective is None:
            return
        block, objective.block = objective.block, None
        execution = None if objective.stage is None else objective.stage.execution
        if execution is not None:
            execution.cost += cost_of(invocation, now)
        if not objective.promised:
            return
        wall_s = now - invocation.story[-1][0]
        due = invocation.deadline
        if due is not None and now > due + TOLERANCE_S:
            own = wall_s > objective.bound_s + TOLERANCE_S
            blame = Blame.OWN_RUN if own else (None if block is None else block.blame) or Blame.PLATFORM
            self.broken_by(invocation, blame, f"it ended {now - due:g} s late")
        elif objective.cost_limit is not None:
            cost = cost_of(invocation, now) if execution is None else execution.cost
            if cost > objective.cost_limit * (1 + COST_TOLERANCE):
                blame = Blame.OWN_RUN if wall_s > objective.bound_s else Blame.START
                self.broken_by(invocation, blame, f"it cost {cost:g} and was to cost at most {objective.cost_limit:g}")
        if execution is None:  # that of an execution is kept when it ends
            self.kept += objective.promised
        objective.promised = False

    def lost(self, invocation: Invocation, reason: str) -> None:
        """End the promise of a call whose sandbox, device or node is lost."""
        if invocation.objective is not None:
            self.broken_by(invocation, Blame.LOST, reason)
            invocation.objective.block = None

    def broken_by(self, invocation: Invocation, blame: Blame, reason: str) -> None:
        """Break the promise of a call, if it has one."""
        objective = invocation.objective
        if objective is not None and objective.promised:
            objective.promised = False
            if objective.stage is not None:
                self.broken_as_one(objective.stage.execution, blame, f"stage {objective.stage.name}: {reason}")
                return
            self.broken[blame] += 1
            self._outbox.append(BreakPromise(invocation.id, blame, reason))

    def broken_as_one(self, execution: "PlannedExecution", blame: Blame, reason: str) -> None:
        """Break the promise of an execution, if it still has one."""
        if execution.promised:
            execution.promised = False
            self.broken[blame] += 1
            self.broken_executions.append(execution)
            self._outbox.append(BreakPromise(execution.id, blame, reason))


def cost_of(invocation: Invocation, now: float) -> float:
    """Return the cost of a call in flight until now: its part of each device, by the price."""
    devices = invocation.devices
    if not devices:
        return 0.0
    each = invocation.share / len(devices)
    return sum(device.spec.price_s for device in devices) * each * (now - invocation.dispatched)
