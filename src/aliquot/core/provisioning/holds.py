"""Hold sandboxes for forecast demand: start them ahead, renew them with each forecast, and let them lapse.

A sandbox that is held has served no call. Its rights are those of every sandbox that was started ahead
(`provisioner.py`): it lives in memory that nobody uses and makes room before all others. Once a call has used it, it is
like any other, and keep-alive decides about it. A forecast is valid for a time. After that its sandboxes stop, so a
forecaster that has died holds nothing.
"""

from collections.abc import Callable
from math import inf, isfinite

from msgspec.structs import replace

from aliquot.core.admission.plan import Plan
from aliquot.core.clock import after
from aliquot.core.errors import EventError
from aliquot.core.events import DemandForecast, DemandRow, Event
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Expiry, ExpiryAction
from aliquot.core.model import FlowKey
from aliquot.core.provisioning.capacity import CapacityWanted
from aliquot.core.provisioning.moves import Moves
from aliquot.core.provisioning.policy import HoldDecision, Provisioning
from aliquot.core.provisioning.provisioner import Provisioner
from aliquot.core.registry import Registry
from aliquot.core.timers import Timers

MAX_ROWS = 200
LAPSED = "its forecast has lapsed"


class Holds:
    """Carries out a provisioning policy's decisions about forecasts."""

    def __init__(
        self,
        policy: Provisioning,
        provisioner: Provisioner,
        registry: Registry,
        plan: Plan,
        timers: Timers,
        moves: Moves,
        capacity: CapacityWanted,
    ) -> None:
        """`plan` knows the time of the current step."""
        self.policy = policy
        self._provisioner = provisioner
        self._registry = registry
        self._plan = plan
        self._timers = timers
        self._moves = moves
        self._capacity = capacity
        self._demand: dict[int, tuple[Flow, DemandRow, float]] = {}  # by flow, with the time until which it is valid

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        """Return the function for each kind of event that concerns holds."""
        return {DemandForecast: self._forecast}

    def _forecast(self, event: DemandForecast) -> None:
        """Hold what the policy wants for each row. Functions that are gone are left out."""
        _check(event)
        now = self._plan.now
        for row in event.rows:
            flow = self._registry.flows.get(FlowKey(row.tenant, row.function))
            if flow is not None:
                until = after(now, event.valid_s)
                self._demand[flow.index] = (flow, row, until)
                self._hold(flow, row, until, now)
        if self.policy.step_s is not None:
            self._look_ahead(now)

    def _look_ahead(self, now: float) -> None:
        """Tell how many devices are wanted, and let sandboxes move, by all forecasts that are valid."""
        for index in [index for index, (flow, _, until) in self._demand.items() if until <= now or flow.closed]:
            del self._demand[index]
        valid = [(flow, row) for flow, row, _ in self._demand.values()]
        self._capacity.update(valid)
        if self.policy.moves:
            self._moves.balance([(flow, row.high) for flow, row in valid])

    def _hold(self, flow: Flow, row: DemandRow, until: float, now: float) -> None:
        unused = [sandbox for sandbox in flow.sandboxes.values() if sandbox.unused and sandbox.expiry is not None]
        decision = self.policy.hold(flow, _after_call(flow, row, now), held=bool(unused))
        used_part = flow.earnings.used_part
        if used_part is not None and not self.policy.earns(flow, row, used_part):
            flow.earnings.on_paper(flow.arrivals, now, after(now, row.window_s), wanted=decision.sandboxes > 0)
            decision = HoldDecision(0, f"{used_part:.0%} of what was held lately was used")
        surplus = len(flow.sandboxes) - decision.sandboxes
        for sandbox in unused[max(0, surplus) :]:
            sandbox.expiry = Expiry(until, ExpiryAction.STOP, reason=LAPSED)
            self._timers.arm(sandbox)
        for sandbox in unused[: max(0, surplus)]:
            self._provisioner.stop(sandbox, decision.reason)
        for sandbox in self._provisioner.start(flow, decision.sandboxes, decision.reason, now=now):
            sandbox.expiry = Expiry(until, ExpiryAction.STOP, reason=LAPSED)
            self._timers.arm(sandbox)


def _after_call(flow: Flow, row: DemandRow, now: float) -> DemandRow:
    """Return the row with the chance of a further call, if the expected one has come and the forecaster did not know.

    After a call in a window, another one is as likely as in the next window.
    """
    begun = now - (row.window_s - row.ends_s)
    came = flow.arrivals and flow.last_arrival >= begun and row.later
    return replace(row, chance=min(row.chance, row.later[0])) if came else row


def _check(event: DemandForecast) -> None:
    """Raise `EventError` if a forecast has values that no forecast can have."""
    if not (isfinite(event.valid_s) and event.valid_s > 0):
        raise EventError(f"a forecast cannot be valid for {event.valid_s} s")
    if len(event.rows) > MAX_ROWS:
        raise EventError(f"a forecast has {len(event.rows)} rows; it takes {MAX_ROWS} at most")
    for row in event.rows:
        if not 0 <= row.chance <= 1 or not 0 < row.window_s < inf:
            raise EventError(f"{row.tenant}/{row.function} cannot have the chance {row.chance} in {row.window_s} s")
        if not 0 <= row.ends_s <= row.window_s or not all(0 <= chance <= 1 for chance in row.later):
            raise EventError(f"{row.tenant}/{row.function} has the chances {row.later} from {row.ends_s} s on")
        if not (0 <= row.low <= row.middle <= row.high < inf) or not 0 <= row.measured < inf:
            raise EventError(f"{row.tenant}/{row.function} has quantiles {row.low}, {row.middle}, {row.high}")
