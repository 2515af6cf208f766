"""Write into the record of a call what became of its objective, and what it cost."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from aliquot.core.commands import BreakPromise, Promise, Reject
from aliquot.core.model import DeviceSpec
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.objective import describe_refusal
from aliquot.live.node.base import Outcome, Status


class PromiseRecords:
    """Knows the prices of the devices, and notes cost and objective of calls that end."""

    def __init__(self, devices: Iterable[DeviceSpec], calls: Mapping[str, Call], now: Callable[[], float]) -> None:
        self._devices = {device.name: device for device in devices}
        self._calls = calls  # those that have not ended
        self._now = now  # the platform's clock
        self.counts: dict[str, int] = {}  # calls with an objective that ended so far: refused, kept, broken, unpromised

    def promised(self, command: Promise) -> None:
        objective = self._calls[command.invocation].objective
        if objective is not None:
            objective.promise = command

    def broken(self, command: BreakPromise) -> None:
        call = self._calls.get(command.invocation)
        if call is not None and call.objective is not None:
            call.objective.blame = command.blame

    def count(self, call: Call) -> None:
        """Count how a call with an objective ended."""
        if call.objective is not None:
            end, _ = call.objective.end()
            self.counts[end] = self.counts.get(end, 0) + 1

    def note(self, call: Call) -> None:
        """Add the annotations of a call with an objective that ends now."""
        objective = call.objective
        if objective is None:
            return
        now = self._now()
        cost = None if objective.dispatched_s is None else self._cost(call, now - objective.dispatched_s)
        met = objective.is_met(now - call.run.arrived_s, cost)
        objective.met = met
        call.notes += note("objective", objective.describe(met=met))
        if cost is not None:
            call.notes += note("cost", round(cost, 6))
        self.count(call)

    def _cost(self, call: Call, seconds: float) -> float:
        """Return the price of the devices for the time from the dispatch to the end, divided by the batch."""
        share = parse_needs(call.action).gpu_share
        price = 0.0
        for name in call.run.place:
            device = self._devices.get(name)
            if device is not None:
                price += device.price_s * (min(share, 1.0) or 1 / device.concurrency)
        members = 1 if call.objective is None else call.objective.members
        return seconds * price / members


def refused_outcome(command: Reject) -> Outcome:
    """Return the outcome of a call that was accepted before it was refused, as those of rules are."""
    refused = {} if command.refusal is None else describe_refusal(command.refusal)
    body = msgspec.json.encode({"error": command.reason, "refused": refused})
    return Outcome(Status.APPLICATION_ERROR, body, 0.0)
