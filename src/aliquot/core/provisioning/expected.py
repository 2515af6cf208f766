"""Calls that are known to come: the next fire of an alarm, the next function of a sequence, a session that begins.

Such a call is certain, so a sandbox is started ahead of it as early as its start takes, measured or declared. A policy
decides whether that is worth its memory. The sandbox has the rights of everything that was started ahead, and stops if
no call has come for a while.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, isfinite

from aliquot.core.admission.plan import Plan
from aliquot.core.clock import after
from aliquot.core.errors import EventError
from aliquot.core.events import CallExpected, Event
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Expiry, ExpiryAction
from aliquot.core.model import FlowKey
from aliquot.core.provisioning.policy import Provisioning
from aliquot.core.provisioning.provisioner import Provisioner
from aliquot.core.registry import Registry
from aliquot.core.timers import Timers

MAX_PER_FLOW = 8  # known calls; the earliest ones count
MAX_AHEAD_S = 86_400.0
START_MARGIN = 1.5  # a start may take so many times as long as usual
MIN_LEAD_S = 0.25
UNKNOWN_LEAD_S = 1.0  # before any start was measured
GRACE_S = 10.0  # that a sandbox waits for a call that is late
NOT_CALLED = "the call that was expected did not come"


class ExpectedCalls:
    """The known calls of all flows, and the times at which starts for them begin."""

    def __init__(
        self, policy: Provisioning, provisioner: Provisioner, registry: Registry, plan: Plan, timers: Timers
    ) -> None:
        """`plan` knows the time of the current step."""
        self._policy = policy
        self._provisioner = provisioner
        self._registry = registry
        self._plan = plan
        self._timers = timers
        # A heap. Each known call is in it until its start begins, and then until the time of the call.
        self._due: list[tuple[float, int, Flow, CallExpected]] = []
        self._order = 0
        self.next_at = inf  # of the first entry

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        """Return the function for each kind of event that concerns known calls."""
        return {CallExpected: self._expected}

    def _expected(self, event: CallExpected) -> None:
        now = self._plan.now
        if not isfinite(event.at) or event.at > now + MAX_AHEAD_S:
            raise EventError(f"a call cannot be expected at {event.at}, it is {now}")
        flow = self._registry.flows.get(FlowKey(event.tenant, event.function))
        if flow is None or event.at <= now:
            return
        self._forget_past(flow, now)
        if event.at in flow.expected or (len(flow.expected) >= MAX_PER_FLOW and event.at > flow.expected[-1]):
            return
        flow.expected = tuple(sorted((*flow.expected, event.at)))[:MAX_PER_FLOW]
        flow.domain.view.expected[flow.index] = flow
        self._push(max(now, after(event.at, -lead_s(flow))), flow, event)

    def _push(self, at: float, flow: Flow, event: CallExpected) -> None:
        self._order += 1
        heappush(self._due, (at, self._order, flow, event))
        self.next_at = self._due[0][0]

    def start_due(self) -> None:
        """Start a sandbox for each known call whose start must begin now."""
        now = self._plan.now
        while self._due and self._due[0][0] <= now:
            _, _, flow, event = heappop(self._due)
            if flow.closed or event.at not in flow.expected:
                continue
            if event.at <= now:
                self._forget_past(flow, now)
                continue
            self._push(event.at, flow, event)
            decision = self._policy.expected(flow, event.source)
            wanted = flow.in_flight + flow.queued + decision.sandboxes if decision.sandboxes else 0
            for sandbox in self._provisioner.start(flow, wanted, decision.reason, now=now):
                sandbox.expiry = Expiry(after(event.at, GRACE_S), ExpiryAction.STOP, reason=NOT_CALLED)
                self._timers.arm(sandbox)
        self.next_at = self._due[0][0] if self._due else inf

    def _forget_past(self, flow: Flow, now: float) -> None:
        flow.expected = tuple(at for at in flow.expected if at > now)
        if not flow.expected:
            flow.domain.view.expected.pop(flow.index, None)


def lead_s(flow: Flow) -> float:
    """Return how long before a known call the start of its sandbox begins."""
    times, known = flow.spec.times, flow.start_estimate_s
    if known is None:
        return max(START_MARGIN * max(times.cold_s, times.load_s or 0), UNKNOWN_LEAD_S)
    return max(START_MARGIN * known, MIN_LEAD_S)
