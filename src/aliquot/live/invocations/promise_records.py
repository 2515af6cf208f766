"""Write into the record of a call what became of its objective, and what it cost."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from aliquot.core.commands import BreakPromise, Promise, Reject
from aliquot.core.model import DeviceSpec
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.limited_executions import LimitedExecutions
from aliquot.live.invocations.objective import describe_refusal
from aliquot.live.node.base import Outcome, Status


class PromiseRecords:
    """Knows the prices of the devices, and notes cost and objective of calls that end."""

    def __init__(
        self,
        devices: Callable[[], Iterable[DeviceSpec]],
        calls: Mapping[str, Call],
        executions: LimitedExecutions,
        now: Callable[[], float],
    ) -> None:
        self._list_devices = devices
        self._devices: dict[str, DeviceSpec] = {}
        self._calls = calls  # those that have not ended
        self._executions = executions
        self._now = now  # the platform's clock

    def promised(self, command: Promise) -> None:
        execution = self._executions.open.get(command.invocation)
        objective = self._calls[command.invocation].objective if execution is None else execution.objective
        if objective is not None:
            objective.promised = True

    def broken(self, command: BreakPromise) -> None:
        self._executions.broken(command)
        call = self._calls.get(command.invocation)
        if call is not None and call.objective is not None:
            call.objective.blame = command.blame

    def count(self, call: Call) -> None:
        """Count how a call with an objective ended."""
        if call.objective is not None:
            self._executions.count(call.objective)

    def note(self, call: Call) -> None:
        """Add the annotations of a call that ends now and has an objective, or is a stage of an execution that has."""
        objective, now = call.objective, self._now()
        if objective is None:
            self._note_stage(call, now)
            return
        cost = None
        if objective.dispatched_s is not None:
            cost = self._cost(call, now - objective.dispatched_s, objective.members)
        met = objective.is_met(now - call.run.arrived_s, cost)
        objective.met = met
        call.notes += note("objective", objective.describe(met=met))
        if cost is not None:
            call.notes += note("cost", round(cost, 6))
        self.count(call)

    def _note_stage(self, call: Call, now: float) -> None:
        """Add the cost of a stage to its record and to its execution."""
        stage = call.stage
        if stage is None or stage.dispatched_s is None:
            return
        cost = self._cost(call, now - stage.dispatched_s, stage.members)
        call.notes += note("cost", round(cost, 6))
        execution = self._executions.open.get(stage.execution)
        if execution is not None and execution.cost is not None:
            execution.cost += cost

    def _cost(self, call: Call, seconds: float, members: int) -> float:
        """Return the price of the devices for the time from the dispatch to the end, divided by the batch."""
        share = parse_needs(call.action).gpu_share
        price = 0.0
        if any(name not in self._devices for name in call.run.place):  # a node has joined
            self._devices |= {device.name: device for device in self._list_devices()}
        for name in call.run.place:
            device = self._devices.get(name)
            if device is not None:
                price += device.price_s * (min(share, 1.0) or 1 / device.concurrency)
        return seconds * price / members


def refused_outcome(command: Reject) -> Outcome:
    """Return the outcome of a call that was accepted before it was refused, as those of rules are."""
    refused = {} if command.refusal is None else describe_refusal(command.refusal)
    body = msgspec.json.encode({"error": command.reason, "refused": refused})
    return Outcome(Status.APPLICATION_ERROR, body, 0.0)
