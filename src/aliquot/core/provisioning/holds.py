"""Hold sandboxes for forecast demand: start them ahead, renew them with each forecast, and let them lapse.

A sandbox that is held has served no call. Its rights are those of every sandbox that was started ahead
(`provisioner.py`): it lives in memory that nobody uses and makes room before all others. Once a call has used it, it is
like any other, and keep-alive decides about it. A forecast is valid for a time. After that its sandboxes stop, so a
forecaster that has died holds nothing.
"""

from collections.abc import Callable
from math import inf, isfinite
from typing import ClassVar, NamedTuple

from aliquot.core.admission.plan import Plan
from aliquot.core.clock import after
from aliquot.core.errors import EventError
from aliquot.core.events import DemandForecast, DemandRow, Event
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Expiry, ExpiryAction, Params
from aliquot.core.model import FlowKey
from aliquot.core.provisioning.provisioner import Provisioner
from aliquot.core.registry import Registry
from aliquot.core.timers import Timers
from aliquot.core.view import FlowView

MAX_ROWS = 200
LAPSED = "its forecast has lapsed"


class HoldDecision(NamedTuple):
    """The number of sandboxes that a flow shall have, and the reason, for people to read."""

    sandboxes: int
    reason: str


class Provisioning:
    """Decides how many sandboxes of a flow are held for the demand that is forecast. None are, by default."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    @property
    def step_s(self) -> float | None:
        """Return the length of the steps of the forecasts that it wants, or None if it wants none."""
        return None

    def hold(self, flow: FlowView, row: DemandRow, *, held: bool) -> HoldDecision:
        """Return what is held for a forecast. `held`: a sandbox of the flow is held unused. No side effects."""
        return HoldDecision(0, "nothing is held")


class Holds:
    """Carries out a provisioning policy's decisions about forecasts."""

    def __init__(
        self, policy: Provisioning, provisioner: Provisioner, registry: Registry, plan: Plan, timers: Timers
    ) -> None:
        """`plan` knows the time of the current step."""
        self.policy = policy
        self._provisioner = provisioner
        self._registry = registry
        self._plan = plan
        self._timers = timers

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
                self._hold(flow, row, after(now, event.valid_s), now)

    def _hold(self, flow: Flow, row: DemandRow, until: float, now: float) -> None:
        unused = [sandbox for sandbox in flow.sandboxes.values() if sandbox.unused and sandbox.expiry is not None]
        decision = self.policy.hold(flow, row, held=bool(unused))
        surplus = len(flow.sandboxes) - decision.sandboxes
        for sandbox in unused[max(0, surplus) :]:
            sandbox.expiry = Expiry(until, ExpiryAction.STOP, reason=LAPSED)
            self._timers.arm(sandbox)
        for sandbox in unused[: max(0, surplus)]:
            self._provisioner.stop(sandbox, decision.reason)
        for sandbox in self._provisioner.start(flow, decision.sandboxes, decision.reason, now=now):
            sandbox.expiry = Expiry(until, ExpiryAction.STOP, reason=LAPSED)
            self._timers.arm(sandbox)


def _check(event: DemandForecast) -> None:
    """Raise `EventError` if a forecast has values that no forecast can have."""
    if not (isfinite(event.valid_s) and event.valid_s > 0):
        raise EventError(f"a forecast cannot be valid for {event.valid_s} s")
    if len(event.rows) > MAX_ROWS:
        raise EventError(f"a forecast has {len(event.rows)} rows; it takes {MAX_ROWS} at most")
    for row in event.rows:
        if not 0 <= row.chance <= 1 or not 0 < row.window_s < inf:
            raise EventError(f"{row.tenant}/{row.function} cannot have the chance {row.chance} in {row.window_s} s")
        if not (0 <= row.low <= row.middle <= row.high < inf) or not 0 <= row.measured < inf:
            raise EventError(f"{row.tenant}/{row.function} has quantiles {row.low}, {row.middle}, {row.high}")
