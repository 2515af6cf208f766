"""Ours: fair queueing that chooses flow, sandbox and device together. The theory is in docs/decisions/0008.

Fair: two levels of virtual time (`virtual_time.py`), charged with what was really used: device time times share, starts
and transfers included. A flow may run ahead of the others by a window and no further.

Resident: within the window the most urgent flow goes first. Its urgency is its deadline, or its arrival plus a multiple
of what serving it would take here and now: a short call of a flow in device memory is urgent at once, a long one or one
that needs a cold start becomes so with time. The place is the one with the earliest expected end; a flow whose warm
sandbox is busy compares a start elsewhere with waiting for it behind its own backlog.

Five switches turn single ideas off, for the ablation: `joint`, `true_up`, `predictive`, `adaptive`, `by_value`.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from aliquot.core.interfaces import Advice, Choice, Companions, Params, Queueing, RandomSource, SwapIn
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.blocked_flows import BlockedFlows
from aliquot.policies.queueing.parts.expected_end import Expectations, Wait, reload_s
from aliquot.policies.queueing.parts.next_arrival import NextArrival, RecentGaps
from aliquot.policies.queueing.parts.occupancy import Occupancy
from aliquot.policies.queueing.parts.placement import sticky
from aliquot.policies.queueing.parts.virtual_time import TwoLevelClock, Window

LOOK_AT = 8  # flows tried before a decision waits
LEARN = 0.05


class FairResidentParams(Params, frozen=True):
    patience: float = 30  # how many times its own length a call waits before it is as urgent as one just come
    window_s: float = 5  # how far ahead a flow may run, in device seconds
    window_steps: float = 12  # the same in typical charges, divided by devices ** 1.5, when adaptive
    unknown_s: float = 1  # run time of a function that nobody has declared or seen run
    joint: bool = True
    true_up: bool = True
    predictive: bool = True
    adaptive: bool = True
    by_value: bool = True


class FairResident(Queueing):
    params_type = FairResidentParams

    def __init__(self, params: FairResidentParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._params = params
        self._window = Window(params.window_s)
        self._clock = TwoLevelClock(self._window)
        self._occupancy = Occupancy()
        self._expected = Expectations(self._occupancy, params.unknown_s, adaptive=params.adaptive)
        self.next_arrival: NextArrival = RecentGaps()
        self._charged: dict[str, float] = {}  # by invocation in flight
        self._typical = 0.0  # charge of a dispatch
        self._advice: list[Advice] = []
        self._awaited: list[tuple[float, int, FlowView]] = []  # swapped-out flows, by when to bring their memory back
        self._asked = 0
        self._start_s = 0.0  # of the choice made last
        self._changed: dict[int, FlowView] = {}  # to be lined up anew before the next choice
        self._passed_over = BlockedFlows()
        self._view = View()

    @classmethod
    def companions(cls, params: Params) -> Companions:
        if not isinstance(params, FairResidentParams):
            raise TypeError(f"FairResidentParams expected, not {params!r}")
        return Companions(
            keepalive="adaptive" if params.adaptive else "anticipatory",
            eviction="cost_aware" if params.by_value else "lru",
            pool_slots=None if params.by_value else 32,
        )

    # --- hooks ------------------------------------------------------------------------------------------

    def opened(self, flow: FlowView, view: View) -> None:
        self._view = view
        self._clock.open(flow)

    def closed(self, flow: FlowView, view: View) -> None:
        self._clock.close(flow)
        for invocation in self._occupancy.forget(flow):
            del self._charged[invocation]
        self._advice = [advice for advice in self._advice if advice.flow is not flow]
        self._awaited = [entry for entry in self._awaited if entry[2] is not flow]
        heapify(self._awaited)
        self._changed.pop(flow.index, None)
        self._passed_over.discard(flow)

    def devices_changed(self, view: View) -> None:
        self._look_again(self._passed_over.take_all())

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        if flow.queued == 1 and not flow.in_flight and flow.swapped_out():
            self._advice.append(SwapIn(flow))
        if flow.queued == 1 or flow in self._passed_over:  # else it is as urgent as before, and lined up
            self._changed[flow.index] = flow

    def redeployed(self, flow: FlowView, view: View) -> None:
        self._changed[flow.index] = flow

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self._changed[flow.index] = flow

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        params = self._params
        run_s = self._expected.run_s(flow, device)
        charge = (run_s + self._start_s) * invocation.share if params.true_up else run_s
        self._charged[invocation.id] = charge
        self._clock.charge(flow, charge)
        self._occupancy.began(flow, invocation, device, view.now + self._start_s + run_s)
        if flow.queued:
            self._changed[flow.index] = flow
        else:
            self._clock.rest(flow)
        if params.adaptive:
            self._typical += LEARN * (charge - self._typical) if self._typical else charge
            self._window.size = params.window_steps * self._typical / len(view.devices) ** 1.5

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        charged = self._charged.pop(invocation.id)
        device = invocation.device
        if device is not None:
            limits_raised = self._occupancy.raised
            self._occupancy.ended(flow, invocation, device)
            if self._occupancy.raised > limits_raised:
                self._look_again(self._passed_over.take_all())
        if self._params.true_up:
            self._clock.charge(flow, (view.now - invocation.dispatched) * invocation.share - charged)
        if flow.queued:
            self._changed[flow.index] = flow

    def residency_changed(self, flow: FlowView, device: DeviceView) -> None:
        if flow.queued:
            self._changed[flow.index] = flow
        elif self._params.predictive and not flow.in_flight and not flow.resident_on(device):
            self._await(flow, device)

    # --- decisions --------------------------------------------------------------------------------------

    def choose(self, view: View) -> Choice | None:
        for flow in self._passed_over.ready(view.now):
            self._changed[flow.index] = flow
        if len(self._changed) == 1:
            (flow,) = self._changed.values()
            if flow.queued and self._clock.only(flow):
                return self._choose_only(view, flow)
        for flow in self._changed.values():
            self._passed_over.discard(flow)
            self._line_up(flow)
        self._changed.clear()
        for _ in range(LOOK_AT):
            first = self._clock.first()
            if first is None:
                return None
            choice = self._choice(view, first)
            if isinstance(choice, Choice):
                return choice
            self._pass_over(first, choice)
        return None

    def _choose_only(self, view: View, flow: FlowView) -> Choice | None:
        """The same for a flow that would be first without fail: most are, and lining up is half the work."""
        self._changed.clear()
        self._passed_over.discard(flow)
        choice = self._choice(view, flow)
        if isinstance(choice, Choice):
            return choice
        self._line_up(flow)
        self._pass_over(flow, choice)
        return None

    def _pass_over(self, flow: FlowView, wait: Wait) -> None:
        self._clock.pass_over(flow)
        self._passed_over.add(flow, wait.devices, wait.until)

    def _look_again(self, flows: Iterable[FlowView]) -> None:
        for flow in flows:
            self._changed[flow.index] = flow

    def advise(self, view: View) -> Sequence[Advice]:
        while self._awaited and self._awaited[0][0] <= view.now:
            flow = heappop(self._awaited)[2]
            if not flow.queued and not flow.in_flight:
                self._advice.append(SwapIn(flow, displace=True))
        if not self._advice:
            return ()
        advice, self._advice = self._advice, []
        return advice

    def wake_at(self) -> float | None:
        return self._awaited[0][0] if self._awaited else None

    def _choice(self, view: View, flow: FlowView) -> Choice | Wait:
        if not self._params.joint:
            place = sticky(view, flow, self._expected.allowed)
            self._start_s = 0.0
            return Choice(flow, *place, "most urgent") if place else Wait(view.devices, inf)
        best = self._expected.best(view, flow)
        if best is None:
            return Wait(view.devices, inf)
        ends_s, self._start_s, (device, sandbox) = best
        if sandbox is None and self._start_s > 0:
            wait = self._expected.better_to_wait(view, flow, self._start_s)
            if wait is not None:
                return wait
        return Choice(flow, device, sandbox, f"most urgent, done in {ends_s:.3g} s by estimate")

    def violations(self, view: View) -> Sequence[str]:
        if self._occupancy.at_work != len(self._charged):
            return [f"{len(self._charged)} are charged for, {self._occupancy.at_work} at work"]
        return self._clock.violations()

    def virtual_time(self, flow: FlowView) -> float | None:
        return self._clock.start(flow)

    # --- urgency ----------------------------------------------------------------------------------------

    def _line_up(self, flow: FlowView) -> None:
        if not flow.queued:
            self._clock.rest(flow)
            return
        head = flow.head
        expected = self._expected
        service_s = expected.typical_run_s(flow) + (expected.best_start_s(flow) if self._params.joint else 0)
        due = head.arrived + self._params.patience * service_s if head.deadline is None else head.deadline - service_s
        self._clock.wait(flow, (due, head.number))

    def _await(self, flow: FlowView, device: DeviceView) -> None:
        """Have the memory of a flow that was swapped out brought back before its next call is expected."""
        expected = self.next_arrival.predict(flow, now=self._view.now)
        if expected is None:
            return
        at = expected.at - expected.spread_s - 2 * reload_s(flow, device)
        if at > self._view.now:
            self._asked += 1
            heappush(self._awaited, (at, self._asked, flow))
