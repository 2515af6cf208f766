"""MQFQ-Sticky, the best published policy: fair queueing that stays where a flow is warm.

`tests/unit/core/test_mqfq_sticky.py` has a test for each rule. `S` is the start tag of a flow's head, or its last
finish tag `F` when the flow is empty. The global virtual time `GVT` is the smallest S of all non-empty flows. A flow
may run ahead of GVT by at most T. That slack lets it stay on a device where it is warm. Beyond it the flow is
throttled, and its memory is swapped out. A flow that stays idle longer than anticipated becomes inactive. Idle time
earns no credit.

    enqueue   s = max(GVT, F), F = max(F, s + tau / weight); a flow that was empty: S = max(S, s)
    choose    among active, non-empty flows: fewest in flight, ties to the longest queue
    dispatch  S = the next head's tag, or F; throttled if S - GVT > T

While a flow has something queued, F >= S >= GVT, so each start tag equals the previous finish tag. Only the steps
tau / weight of queued calls need to be stored, and withdrawing a call removes its step.

Three heaps replace the scans of the paper: non-empty flows by S, candidates by (in flight, -queue length), and
throttled flows by S, which become active again as GVT advances.
"""

from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum

from msgspec import field

from aliquot.core.interfaces import Choice, Companions, Params, Queueing, RandomSource, SwapIn, SwapOut
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.flow_heap import FlowHeap
from aliquot.policies.queueing.parts.placement import sticky

TOLERANCE = 1e-9  # allowed error of sums of floats


class MqfqParams(Params, frozen=True):
    overrun_s: float = field(default=5, name="T")
    alpha: float = 1.5  # anticipation, in mean inter-arrival times
    cap: float = 0.95  # no dispatch to a device with a higher utilisation
    pool_slots: int = 16  # maximum number of sandboxes per device
    unknown_s: float | None = None  # tau of a function without a declared or measured run time; T/10 by default


class FlowState(StrEnum):
    INACTIVE = "inactive"
    ACTIVE = "active"
    THROTTLED = "throttled"


class FlowTags:
    """The virtual times of one flow."""

    __slots__ = ("finish", "start", "state", "steps")

    def __init__(self, gvt: float) -> None:
        self.start = self.finish = gvt
        self.steps: OrderedDict[str, float] = OrderedDict()  # by queued invocation: finish tag minus start tag
        self.state = FlowState.INACTIVE


class MqfqSticky(Queueing):
    params_type = MqfqParams
    pools_slots = True

    def __init__(self, params: MqfqParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self.gvt = 0.0
        self.tags: dict[int, FlowTags] = {}
        self._overrun_s = params.overrun_s
        self._cap = params.cap
        self._unknown_s = params.overrun_s / 10 if params.unknown_s is None else params.unknown_s
        self._by_start: FlowHeap[float] = FlowHeap()
        self._candidates: FlowHeap[tuple[int, int]] = FlowHeap()
        self._throttled: FlowHeap[float] = FlowHeap()
        self._max_step = 0.0  # largest tau / weight so far, by which a dispatch may exceed T
        self._max_lead = 0.0  # S - GVT of a flow after a dispatch
        self._checked_gvt = 0.0  # GVT when the invariants were last checked

    @classmethod
    def companions(cls, params: Params) -> Companions:
        if not isinstance(params, MqfqParams):
            raise TypeError(f"MqfqParams expected, not {params!r}")
        return Companions(
            keepalive="anticipatory",
            keepalive_params={"alpha": params.alpha},
            eviction="lru",
            pool_slots=params.pool_slots,
        )

    # --- hooks ------------------------------------------------------------------------------------------

    def opened(self, flow: FlowView, view: View) -> None:
        self.tags[flow.index] = FlowTags(self.gvt)

    def closed(self, flow: FlowView, view: View) -> None:
        self._leave(flow)
        del self.tags[flow.index]
        self.advice = [advice for advice in self.advice if advice.flow is not flow]
        self._advance()

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        tags = self.tags[flow.index]
        known = flow.run_estimate_s
        step = (self._unknown_s if known is None else known) / flow.weight
        self._max_step = max(self._max_step, step)
        start = max(self.gvt, tags.finish)
        tags.finish = max(tags.finish, start + step)
        if not tags.steps:
            tags.start = max(tags.start, start)
        tags.steps[invocation.id] = step
        self._update(flow, tags)

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        tags = self.tags[flow.index]
        chosen = tags.state is FlowState.ACTIVE  # a slot beyond a device's limit may go to a throttled flow
        step = tags.steps.pop(invocation.id)
        tags.start += step / invocation.batch_size  # calls that run together share the charge of one run
        tags.finish -= step - step / invocation.batch_size
        if not tags.steps:
            tags.start = tags.finish
        self._update(flow, tags)
        if chosen:
            self._max_lead = max(self._max_lead, tags.start - self.gvt)
        if not tags.steps and tags.start - self.gvt > self._overrun_s:
            self._enter(flow, tags, FlowState.THROTTLED)

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        tags = self.tags[flow.index]
        tags.finish = max(tags.start, tags.finish - tags.steps.pop(invocation.id))
        if not tags.steps:
            tags.finish = tags.start
        self._update(flow, tags)

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        tags = self.tags[flow.index]
        self._update(flow, tags)
        if tags.steps and tags.state is FlowState.THROTTLED:  # the sandbox that was busy then is idle now
            self.advice.append(SwapOut(flow))

    def expired(self, flow: FlowView, view: View) -> None:
        self.tags[flow.index].state = FlowState.INACTIVE  # keep-alive has already swapped its memory out

    # --- decisions --------------------------------------------------------------------------------------

    def choose(self, view: View) -> Choice | None:
        flow = self._candidates.first()
        if flow is None:
            return None
        place = sticky(view, flow, self._below_cap)
        if place is None:
            return None
        return Choice(flow, *place, f"fewest in flight ({flow.in_flight}), queue {flow.queued}")

    def _below_cap(self, device: DeviceView) -> bool:
        """Return whether the device is not measured to be busier than the cap. Slots alone do not tell."""
        measured = device.measured_utilisation
        return measured is None or not device.running or measured <= self._cap

    def virtual_time(self, flow: FlowView) -> float | None:
        tags = self.tags.get(flow.index)
        return tags.start if tags else None

    # --- virtual time -----------------------------------------------------------------------------------

    def _update(self, flow: FlowView, tags: FlowTags) -> None:
        """Update the heaps after the flow's tags or counts have changed, and advance GVT."""
        if not tags.steps:
            self._leave(flow)
        else:
            self._by_start.set(flow, tags.start)
            self._advance()
            self._classify(flow, tags)
        self._advance()

    def _classify(self, flow: FlowView, tags: FlowTags) -> None:
        """Make a non-empty flow active if S - GVT <= T, and throttled otherwise."""
        if tags.start - self.gvt <= self._overrun_s:
            self._throttled.discard(flow)
            self._candidates.set(flow, (flow.in_flight, -flow.queued))
            self._enter(flow, tags, FlowState.ACTIVE)
        else:
            self._candidates.discard(flow)
            self._throttled.set(flow, tags.start)
            self._enter(flow, tags, FlowState.THROTTLED)

    def _enter(self, flow: FlowView, tags: FlowTags, state: FlowState) -> None:
        before, tags.state = tags.state, state
        if before is not FlowState.ACTIVE and state is FlowState.ACTIVE:
            self.advice.append(SwapIn(flow))
        elif before is FlowState.ACTIVE and state is not FlowState.ACTIVE:
            self.advice.append(SwapOut(flow))

    def _leave(self, flow: FlowView) -> None:
        for heap in (self._by_start, self._throttled):
            heap.discard(flow)
        self._candidates.discard(flow)

    def _advance(self) -> None:
        """Set GVT to the smallest S of non-empty flows, and reactivate throttled flows that it has reached."""
        smallest = self._by_start.first_key()
        if smallest is None:
            return
        self.gvt = smallest
        while (flow := self._throttled.first()) is not None:
            tags = self.tags[flow.index]
            if tags.start - self.gvt > self._overrun_s:
                return
            self._classify(flow, tags)

    def violations(self, view: View) -> Sequence[str]:
        wrong = []
        if self._max_lead > self._overrun_s + self._max_step + TOLERANCE:
            wrong.append(f"a dispatch led {self._max_lead} past GVT: more than T + max(tau/w)")
        smallest = min((tags.start for tags in self.tags.values() if tags.steps), default=self.gvt)
        if smallest != self.gvt:
            wrong.append(f"GVT is {self.gvt}, but the smallest start tag is {smallest}")
        for index, tags in self.tags.items():
            lead = tags.start - self.gvt
            if tags.steps and (tags.state is FlowState.ACTIVE) != (lead <= self._overrun_s):
                wrong.append(f"flow {index} is {tags.state} with S - GVT = {lead}")
            if abs(tags.start + sum(tags.steps.values()) - tags.finish) > TOLERANCE * max(1, tags.finish):
                wrong.append(f"flow {index}: F is {tags.finish}, not S {tags.start} and the steps of what waits")
        if self.gvt < self._checked_gvt:
            wrong.append(f"GVT went back from {self._checked_gvt} to {self.gvt}")
        self._checked_gvt = self.gvt
        return wrong
