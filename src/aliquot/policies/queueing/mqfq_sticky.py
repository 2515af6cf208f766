"""MQFQ-Sticky, the published best, rule by rule; `tests/unit/core/test_mqfq_sticky.py` has a test for each.

Fair queueing with start tags. `S` is the start tag of a flow's head (its last finish tag `F` when it is empty), the
global virtual time `GVT` the smallest S of all non-empty flows. A flow may run ahead of GVT by at most T: that slack
is what lets it stay on a device where it is warm. Ahead of that it is throttled, and its memory swapped out; a flow
that stays away longer than anticipated turns inactive. Idle time earns no credit.

    enqueue   s = max(GVT, F), F = max(F, s + tau / weight); a flow that was empty: S = max(S, s)
    choose    among active, non-empty flows: fewest in flight, ties to the longest queue
    dispatch  S = the next head's tag, or F; throttled if S - GVT > T

While a flow has something queued, F >= S >= GVT, so each start tag is the finish tag before it: the steps tau / weight
of what waits are all that needs to be kept, and a call that is withdrawn takes its step with it.

Three heaps stand in for the scans of the paper: non-empty flows by S, candidates by (in flight, -queue length), and
throttled flows by S, which come back as GVT moves on.
"""

from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum

from msgspec import field

from aliquot.core.interfaces import Advice, Choice, Companions, Params, Queueing, RandomSource, SwapIn, SwapOut
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.flow_heap import FlowHeap
from aliquot.policies.queueing.parts.placement import sticky

TOLERANCE = 1e-9  # of sums of floats


class MqfqParams(Params, frozen=True):
    overrun_s: float = field(default=5, name="T")
    alpha: float = 1.5  # anticipation, in mean inter-arrival times
    cap: float = 0.95  # no dispatch to a device that is busier than this
    pool_slots: int = 32  # sandboxes per device
    unknown_s: float | None = None  # tau of a function nobody has declared or seen run; T/10 unless given


class FlowState(StrEnum):
    INACTIVE = "inactive"
    ACTIVE = "active"
    THROTTLED = "throttled"


class Tags:
    """The virtual times of one flow."""

    __slots__ = ("finish", "start", "state", "steps")

    def __init__(self, gvt: float) -> None:
        self.start = self.finish = gvt
        self.steps: OrderedDict[str, float] = OrderedDict()  # of what waits: finish tag less start tag
        self.state = FlowState.INACTIVE


class MqfqSticky(Queueing):
    params_type = MqfqParams

    def __init__(self, params: MqfqParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self.gvt = 0.0
        self.tags: dict[int, Tags] = {}
        self._overrun_s = params.overrun_s
        self._cap = params.cap
        self._unknown_s = params.overrun_s / 10 if params.unknown_s is None else params.unknown_s
        self._by_start: FlowHeap[float] = FlowHeap()
        self._candidates: FlowHeap[tuple[int, int]] = FlowHeap()
        self._throttled: FlowHeap[float] = FlowHeap()
        self._advice: list[Advice] = []
        self._largest_step = 0.0  # the largest tau / weight seen: how far past T a dispatch may lead
        self._largest_lead = 0.0  # the largest S - GVT of a flow after its dispatch
        self._checked_gvt = 0.0  # when the invariants were last looked at

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
        self.tags[flow.index] = Tags(self.gvt)

    def closed(self, flow: FlowView, view: View) -> None:
        self._leave(flow)
        del self.tags[flow.index]
        self._advice = [advice for advice in self._advice if advice.flow is not flow]
        self._advance()

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        tags = self.tags[flow.index]
        known = flow.run_estimate_s
        step = (self._unknown_s if known is None else known) / flow.weight
        self._largest_step = max(self._largest_step, step)
        start = max(self.gvt, tags.finish)
        tags.finish = max(tags.finish, start + step)
        if not tags.steps:
            tags.start = max(tags.start, start)
        tags.steps[invocation.id] = step
        self._update(flow, tags)

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        tags = self.tags[flow.index]
        tags.start += tags.steps.pop(invocation.id)
        if not tags.steps:
            tags.start = tags.finish
        self._update(flow, tags)
        self._largest_lead = max(self._largest_lead, tags.start - self.gvt)
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
        if tags.steps and tags.state is FlowState.THROTTLED:  # what it left busy is idle now
            self._advice.append(SwapOut(flow))

    def expired(self, flow: FlowView, view: View) -> None:
        self.tags[flow.index].state = FlowState.INACTIVE  # keep-alive has swapped its memory out already

    # --- decisions --------------------------------------------------------------------------------------

    def advise(self, view: View) -> Sequence[Advice]:
        advice, self._advice = self._advice, []
        return advice

    def choose(self, view: View) -> Choice | None:
        flow = self._candidates.first()
        if flow is None:
            return None
        place = sticky(view, flow, self._below_cap)
        if place is None:
            return None
        return Choice(flow, *place, f"fewest in flight ({flow.in_flight}), queue {flow.queued}")

    def _below_cap(self, device: DeviceView) -> bool:
        return device.utilisation <= self._cap

    def virtual_time(self, flow: FlowView) -> float | None:
        tags = self.tags.get(flow.index)
        return tags.start if tags else None

    # --- virtual time -----------------------------------------------------------------------------------

    def _update(self, flow: FlowView, tags: Tags) -> None:
        """Put the flow where it belongs after its tags or counts have changed, then let GVT follow."""
        if not tags.steps:
            self._leave(flow)
        else:
            self._by_start.set(flow, tags.start)
            self._advance()
            self._classify(flow, tags)
        self._advance()

    def _classify(self, flow: FlowView, tags: Tags) -> None:
        """A non-empty flow is active iff S - GVT <= T."""
        if tags.start - self.gvt <= self._overrun_s:
            self._throttled.discard(flow)
            self._candidates.set(flow, (flow.in_flight, -flow.queued))
            self._enter(flow, tags, FlowState.ACTIVE)
        else:
            self._candidates.discard(flow)
            self._throttled.set(flow, tags.start)
            self._enter(flow, tags, FlowState.THROTTLED)

    def _enter(self, flow: FlowView, tags: Tags, state: FlowState) -> None:
        before, tags.state = tags.state, state
        if before is not FlowState.ACTIVE and state is FlowState.ACTIVE:
            self._advice.append(SwapIn(flow))
        elif before is FlowState.ACTIVE and state is not FlowState.ACTIVE:
            self._advice.append(SwapOut(flow))

    def _leave(self, flow: FlowView) -> None:
        for heap in (self._by_start, self._throttled):
            heap.discard(flow)
        self._candidates.discard(flow)

    def _advance(self) -> None:
        """GVT is the smallest S over non-empty flows; those it catches up with are active again."""
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
        if self._largest_lead > self._overrun_s + self._largest_step + TOLERANCE:
            wrong.append(f"a dispatch led {self._largest_lead} past GVT: more than T + max(tau/w)")
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
