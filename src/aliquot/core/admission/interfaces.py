"""The kind of policy that admits calls, and the plan as it sees it.

A call with a deadline or a cost limit has an *objective*. When it arrives, the policy promises it a place in the plan,
refuses it, lets it wait for a later decision, or leaves it to the queueing policy as a plain call. The admitter
(`admitter.py`) carries the decision out. Calls that are promised or wait are in `flow.promised`, where queueing
policies do not see them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias

from msgspec import Struct

from aliquot.core.admission.placement import Placements
from aliquot.core.admission.records import Prefer, Refusal
from aliquot.core.interfaces import Params, RandomSource
from aliquot.core.model import GraphSpec
from aliquot.core.view import DeviceView, FlowView, InvocationView, View


class Ask(Struct, frozen=True, gc=False):
    """A call with an objective that has arrived."""

    call: InvocationView
    flow: FlowView
    now: float
    due: float | None  # the time at which it must have ended by the plan, a margin before its deadline
    cost_limit: float | None
    prefer: Prefer = Prefer.COST
    ready: float = 0  # when its inputs are there, if it is a stage of an execution


class GraphAsk(Struct, frozen=True, gc=False):
    """A whole graph with an objective that is to be executed."""

    graph: GraphSpec
    flows: Mapping[str, FlowView]  # by stage
    now: float
    due: float | None  # a margin before its deadline
    cost_limit: float | None
    prefer: Prefer = Prefer.COST


class BlockView(Protocol):
    """A planned run of one flow in a lane, with one call or several."""

    @property
    def flow(self) -> FlowView: ...
    @property
    def size(self) -> int: ...  # calls that it is reserved for
    @property
    def members(self) -> "Sequence[InvocationView]": ...
    @property
    def starts(self) -> float: ...  # expected
    @property
    def ends(self) -> float: ...  # at the latest
    @property
    def due(self) -> float: ...  # of the member whose deadline comes first


class LaneView(Protocol):
    """One of the runs that a device can have at once."""

    @property
    def device(self) -> DeviceView: ...
    @property
    def blocks(self) -> Sequence[BlockView]: ...  # not started, in the order in which they will run
    @property
    def free_at(self) -> float: ...  # when its current run ends, at the latest


class PlannedPlace(Struct, frozen=True, gc=False):
    """A place for a call in the plan that delays no promised call too long."""

    lane: LaneView
    lanes: tuple[LaneView, ...]  # several if its share is larger than a slot
    block: BlockView | None  # that it joins; None makes a new one
    size: int  # calls that the block is reserved for
    length_s: float
    ready: float  # when a sandbox is ready
    ends: float  # at the latest
    cost: float  # at the most


class PlanView(Protocol):
    """The blocks of all lanes, as admission policies see them."""

    def lanes(self, flow: FlowView, now: float) -> Sequence[LaneView]: ...  # a few, among many devices
    def place(self, ask: Ask, lane: LaneView, size: int = 1, due: float | None = None) -> PlannedPlace | None: ...
    def join(self, ask: Ask, lane: LaneView) -> PlannedPlace | None: ...
    def trial(self, ask: Ask, lane: LaneView, seconds: float) -> PlannedPlace | None: ...  # if the lane is idle
    def bound_s(self, flow: FlowView, device: DeviceView, size: int = 1) -> float | None: ...  # None: not known
    def start_s(self, flow: FlowView, device: DeviceView) -> float: ...  # of a new sandbox, at the latest
    def cost(self, flow: FlowView, device: DeviceView, seconds: float, size: int = 1) -> float: ...
    def runs(self, flow: FlowView, device: DeviceView) -> int: ...  # that the bound of single calls comes from
    def refused_for_share(self, ask: Ask, device: DeviceView, seconds: float) -> float | None: ...
    def target_size(self, ask: Ask, device: DeviceView) -> int: ...
    def headroom_due(self, ask: Ask, device: DeviceView, seconds: float, due: float) -> float: ...
    def may_probe(self, flow: FlowView) -> bool: ...


class Promised(Struct, frozen=True, gc=False):
    """Promise the call this place."""

    placement: PlannedPlace
    reason: str


class Refused(Struct, frozen=True, gc=False):
    """Refuse the call."""

    refusal: Refusal
    reason: str


class Waits(Struct, frozen=True, gc=False):
    """Promise nothing yet. `Admission.idle` chooses the call later, or `Admission.given_up` ends it."""

    reason: str


class Probe(Struct, frozen=True, gc=False):
    """Run the call without a promise, to learn how long it takes. There is one probe of a flow at a time."""

    reason: str
    placement: PlannedPlace | None = None  # where it runs; None leaves it to the queueing policy


# None leaves the call to the queueing policy, as a plain one.
Decision: TypeAlias = Promised | Refused | Waits | Probe | None


class BlockChoice(Struct, frozen=True, gc=False):
    """Run these waiting calls of one flow in the idle lane, as one block."""

    flow: FlowView
    calls: Sequence[InvocationView]
    reason: str


class Admission(ABC):
    """Decides which calls with an objective are promised, and where they run."""

    params_type: ClassVar[type[Params]] = Params
    decides: ClassVar[bool] = True  # whether it is asked at all
    plans_graphs: ClassVar[bool] = False  # whether it promises executions of graphs as one

    def __init__(self, params: Params, generator: RandomSource) -> None:
        self.params = params
        self.generator = generator
        self.margin_s: float = 0  # between the planned end of a call and its deadline

    @abstractmethod
    def arrived(self, ask: Ask, plan: PlanView, view: View) -> Decision:
        """Return the decision about a call that has just arrived."""

    def candidates(self, ask: GraphAsk, placements: Placements) -> Sequence[Mapping[str, str] | None]:
        """Return the kinds of devices for the stages of a graph, the preferred ones first. They are tried in turn.

        None tries, stage by stage, the cheapest kind that is in time. Without candidates the graph is refused.
        """
        return ()

    def place(self, ask: Ask, plan: PlanView, lanes: Sequence[LaneView]) -> PlannedPlace | None:
        """Return the place of one stage on one kind of device, or None if there is none in time."""
        return None

    def idle(self, lane: LaneView, plan: PlanView, now: float) -> BlockChoice | None:
        """Return the calls to run now in a lane that is idle and has no blocks, among those that wait."""
        return None

    def given_up(self, now: float) -> Sequence[InvocationView]:
        """Return the waiting calls that are refused now, because they can no longer meet their limits."""
        return ()

    def finished(self, flow: FlowView, device: DeviceView, size: int, run_s: float) -> None:
        """Called when a run of the flow has ended, promised or not."""

    def settled(self, call: InvocationView, flow: FlowView, kind: str, cost: float, *, late: bool) -> None:
        """Called when a promised call has run: on which kind of device, at what cost, and whether it was too late."""

    def withdrawn(self, call: InvocationView) -> None:
        """Called when a promised or waiting call has left without being dispatched."""

    def closed(self, flow: FlowView) -> None:
        """Called when a flow is removed. Its calls have left."""

    def wake_at(self) -> float | None:
        """Return when to ask `given_up` and `idle` even if nothing happens, or None. No side effects."""
        return None
