"""Fair queueing that chooses flow, sandbox and device together, our own policy.

Fair: it keeps two levels of virtual time (`virtual_time.py`), charged with measured use, which is device time times
share, starts and transfers included. A flow may run ahead of the others by at most a window, except where they cannot
use a free slot.

Resident: within the window the most urgent flow goes first. Its urgency is its deadline, or the time since which its
head is the head plus a multiple of the time that serving it would take now. A short call of a flow in device memory is
urgent at once. A long call, or one that needs a cold start, becomes urgent with time. The call goes where it is
expected to end first, counting what others lose by it. If the flow's warm sandbox is busy, loading or starting another
is compared with waiting for that sandbox behind the flow's own backlog.

Decision 0008 has the theory. Five switches turn single ideas off for ablations: `joint`, `true_up`, `adaptive`,
`by_value`, `foresee`.
"""

from collections.abc import Iterable, Sequence
from math import inf

from aliquot.core.interfaces import Choice, Companions, Params, Queueing, RandomSource, SwapIn
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.blocked_flows import BlockedFlows
from aliquot.policies.queueing.parts.expected_end import EndEstimator, ExpectedEnd, WaitDecision, reload_s
from aliquot.policies.queueing.parts.occupancy import Occupancy
from aliquot.policies.queueing.parts.placement import sticky
from aliquot.policies.queueing.parts.virtual_time import FairWindow, TwoLevelClock, Urgency

MAX_ATTEMPTS = 8  # flows tried in one decision
LEARNING_RATE = 0.05  # weight of a new charge in the typical one


class FairResidentParams(Params, frozen=True):
    patience: float = 30  # a call that waited this many times its length is as urgent as a new one of length 0
    window_s: float = 5  # distance that a flow may run ahead, in device seconds
    window_steps: float = 12  # the same in typical charges, divided by the devices of a node, if adaptive
    window_swaps: float = 10  # if adaptive, it is at least so many typical swap-ins
    throttle: float | None = None  # a flow so many windows ahead waits even beside idle devices
    unknown_s: float = 1  # run time of a function without a declared or measured one
    joint: bool = True
    true_up: bool = True
    adaptive: bool = True
    by_value: bool = True
    foresee: bool = True  # a call leaves a device to one that is known to come, if it has a choice


class FairResident(Queueing):
    params_type = FairResidentParams

    def __init__(self, params: FairResidentParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._params = params
        self._window = FairWindow(params.window_s, throttle=params.throttle)
        self._clock = TwoLevelClock(self._window)
        self._occupancy = Occupancy()
        self._estimator = EndEstimator(self._occupancy, params.unknown_s, adaptive=params.adaptive)
        self._charged: dict[str, float] = {}  # by invocation in flight
        self._typical = 0.0  # moving mean of the charge of a dispatch
        self._typical_swap = 0.0  # the same of swap-ins alone
        self._start_s = 0.0  # start time of the last choice
        self._changed: dict[int, FlowView] = {}  # their urgency is updated before the next choice
        self._heads: dict[int, tuple[int, float]] = {}  # by flow: number of its head, and since when it is the head
        self._beside_idle: dict[int, tuple[int, float]] = {}  # by flow: its head, and since when a device is idle
        self._blocked = BlockedFlows()

    @classmethod
    def companions(cls, params: Params) -> Companions:
        if not isinstance(params, FairResidentParams):
            raise TypeError(f"FairResidentParams expected, not {params!r}")
        return Companions(
            keepalive="adaptive" if params.adaptive else "anticipatory",
            eviction="cost_aware" if params.by_value else "lru",
        )

    # --- hooks ------------------------------------------------------------------------------------------

    def opened(self, flow: FlowView, view: View) -> None:
        self._clock.open(flow)

    def closed(self, flow: FlowView, view: View) -> None:
        self._clock.close(flow)
        for invocation in self._occupancy.forget(flow):
            del self._charged[invocation]
        self.advice = [advice for advice in self.advice if advice.flow is not flow]
        self._changed.pop(flow.index, None)
        self._heads.pop(flow.index, None)
        self._beside_idle.pop(flow.index, None)
        self._blocked.discard(flow)

    def devices_changed(self, view: View) -> None:
        self._retry(self._blocked.take_all())

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        if flow.queued == 1:
            if not flow.in_flight and flow.has_swapped_out():
                self.advice.append(SwapIn(flow))
            self._heads[flow.index] = (invocation.number, view.now)
            self._changed[flow.index] = flow
        elif flow in self._blocked:  # otherwise its urgency is unchanged
            self._changed[flow.index] = flow

    def redeployed(self, flow: FlowView, view: View) -> None:
        self._changed[flow.index] = flow

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self._changed[flow.index] = flow
        if flow.queued and self._heads[flow.index][0] == invocation.number:
            self._heads[flow.index] = (flow.head.number, view.now)

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        params = self._params
        run_s = self._estimator.run_s(flow, device)
        charge = (run_s + self._start_s) * invocation.share if params.true_up else run_s / invocation.batch_size
        self._charged[invocation.id] = charge
        self._clock.charge(flow, charge, now=view.now)
        self._occupancy.began(flow, invocation, device, view.now + self._start_s + run_s)
        if flow.queued:
            self._changed[flow.index] = flow
            self._heads[flow.index] = (flow.head.number, view.now)
        else:
            self._clock.set_idle(flow)
        if params.adaptive:
            self._typical += LEARNING_RATE * (charge - self._typical) if self._typical else charge
            self._set_window(flow, device, invocation.share, view.devices_per_node)

    def _set_window(self, flow: FlowView, device: DeviceView, share: float, devices: float) -> None:
        """Set the window from the typical charge. A window of a few swap-ins would be spent on them alone.

        It is divided by the devices of one node. With as many flows on each node, virtual time passes as on one.
        """
        if self._start_s > 0 and self._start_s <= (load_s := reload_s(flow, device)):
            swap = load_s * share
            self._typical_swap += LEARNING_RATE * (swap - self._typical_swap) if self._typical_swap else swap
        params = self._params
        lead = params.window_steps * self._typical
        self._window.resize(max(lead / devices, params.window_swaps * self._typical_swap), lead)

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        charged = self._charged.pop(invocation.id)
        device = invocation.device
        if device is not None:
            limits_raised = self._occupancy.raised
            self._occupancy.ended(flow, invocation, device)
            if self._occupancy.raised > limits_raised:
                self._retry(self._blocked.take_all())
        if self._params.true_up:
            self._clock.correct(flow, (view.now - invocation.dispatched) * invocation.share - charged)
        if flow.queued:
            self._changed[flow.index] = flow

    def moved(self, flow: FlowView, invocation: InvocationView, source: DeviceView, to: DeviceView, view: View) -> None:
        self._occupancy.moved(invocation, source, to)

    def residency_changed(self, flow: FlowView, device: DeviceView) -> None:
        if flow.queued:
            self._changed[flow.index] = flow

    # --- decisions --------------------------------------------------------------------------------------

    def choose(self, view: View) -> Choice | None:
        changed, blocked = self._changed, self._blocked
        if blocked.flows:
            for flow in blocked.ready(view):
                changed[flow.index] = flow
        if len(changed) == 1:
            (flow,) = changed.values()
            if flow.queued and self._clock.is_only_choice(flow):
                return self._choose_only(view, flow)
        for flow in changed.values():
            if blocked.flows:
                blocked.discard(flow)
            self._update_urgency(flow)
        changed.clear()
        for _ in range(MAX_ATTEMPTS):
            first = self._clock.first()
            if first is None:
                return None
            choice = self._choice(view, first)
            if isinstance(choice, Choice):
                return choice
            self._block(first, choice)
        return None

    def choose_alone(self, flow: FlowView, view: View) -> Choice | None:
        if self._changed or not self._params.joint or view.expected or not flow.is_resident():
            return None
        if not flow.in_flight and flow.has_swapped_out():
            return None  # it asks for them to be loaded when it is queued
        best = self._estimator.best_idle(view, flow)
        if best is None or best.start_s > 0 or not self._clock.is_only_choice(flow):
            return None
        return self._chosen(flow, best)

    def repeats(self, choice: Choice, view: View) -> bool:
        changed, flow = self._changed, choice.flow
        if len(changed) != 1 or flow.index not in changed or self._blocked.flows or not self._params.joint:
            return False
        if not self._estimator.allowed(choice.device) or not self._clock.is_only_choice(flow):
            return False
        changed.clear()
        return True

    def _choose_only(self, view: View, flow: FlowView) -> Choice | None:
        """Choose for a flow that is the only candidate, as most are, without updating the clock first."""
        self._changed.clear()
        if self._blocked.flows:
            self._blocked.discard(flow)
        choice = self._choice(view, flow)
        if isinstance(choice, Choice):
            return choice
        self._update_urgency(flow)
        self._block(flow, choice)
        return None

    def _block(self, flow: FlowView, wait: WaitDecision) -> None:
        self._clock.pass_over(flow, claims=wait.fits_nowhere)
        self._blocked.add(flow, wait.devices, wait.until)

    def _retry(self, flows: Iterable[FlowView]) -> None:
        for flow in flows:
            self._changed[flow.index] = flow

    def wake_at(self) -> float | None:
        return self._blocked.next_at() if self._blocked.flows else None

    def _choice(self, view: View, flow: FlowView) -> Choice | WaitDecision:
        if not self._params.joint:
            place = sticky(view, flow, self._estimator.allowed)
            self._start_s = 0.0
            return Choice(flow, *place, "most urgent") if place else WaitDecision(None, inf, fits_nowhere=True)
        best = self._estimator.best(view, flow)
        if best is None:
            return WaitDecision(None, inf, fits_nowhere=True)
        if view.expected and self._params.foresee:
            best = self._estimator.leave_to_expected(view, flow, best)
        if best.start_s > 0:
            waited_s = self._waited_s(view, flow, best)
            wait = self._estimator.better_to_wait(view, flow, best, waited_s)
            if wait is not None:
                return wait
        return self._chosen(flow, best)

    def _chosen(self, flow: FlowView, best: ExpectedEnd) -> Choice:
        self._start_s = best.start_s
        device, sandbox = best.place
        return Choice(flow, device, sandbox, f"most urgent, done in {best.cost_s - best.displaced_s:.3g} s by estimate")

    def _waited_s(self, view: View, flow: FlowView, best: ExpectedEnd) -> float:
        """Return how long the flow's head has waited although it could have started on a device that is idle."""
        if best.place[0].running:
            self._beside_idle.pop(flow.index, None)
            return 0.0
        number = flow.head.number
        head, since = self._beside_idle.get(flow.index, (number, view.now))
        since = since if head == number else view.now
        self._beside_idle[flow.index] = (number, since)
        return view.now - since

    def violations(self, view: View) -> Sequence[str]:
        if self._occupancy.running != len(self._charged):
            return [f"{len(self._charged)} are charged for, {self._occupancy.running} are running"]
        return self._clock.violations()

    def virtual_time(self, flow: FlowView) -> float | None:
        return self._clock.start(flow)

    # --- urgency ----------------------------------------------------------------------------------------

    def _update_urgency(self, flow: FlowView) -> None:
        if not flow.queued:
            self._clock.set_idle(flow)
            return
        head = flow.head
        estimator = self._estimator
        service_s = estimator.typical_run_s(flow) + (estimator.best_start_s(flow) if self._params.joint else 0)
        if head.deadline is None:
            patience_s = self._params.patience * service_s
            urgency = Urgency(self._heads[flow.index][1] + patience_s, head.number, patience_s)
        else:
            urgency = Urgency(head.deadline - service_s, head.number)
        self._clock.set_waiting(flow, urgency)
