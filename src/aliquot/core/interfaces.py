"""The kinds of policy and their decisions. A policy reads a view and returns a decision. It has no side effects.

After each change the scheduler calls a hook of the policy, so that the policy can update its own state (tags,
heaps) and decide in O(log n). A hook may change the policy's own state and nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from enum import StrEnum
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from aliquot.core.batch_times import BatchTimes
from aliquot.core.events import LikelyFile
from aliquot.core.view import DeviceView, FlowView, InvocationView, SandboxView, View


class RandomSource(Protocol):
    """The seeded source of random numbers that policies are given, such as `random.Random`."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a policy. A policy that has any declares a subclass and sets it as its `params_type`."""


class Choice(Struct, frozen=True, gc=False):
    """Dispatch the head of `flow` on `device`, into `sandbox` or, if that is None, into a new one."""

    flow: FlowView
    device: DeviceView
    sandbox: SandboxView | None
    reason: str


class SwapIn(Struct, frozen=True, gc=False):
    """Load the flow's idle, swapped-out sandboxes again, as far as they fit into free memory."""

    flow: FlowView


class SwapOut(Struct, frozen=True, gc=False):
    """Move the memory of the flow's idle sandboxes to the host."""

    flow: FlowView


Advice: TypeAlias = SwapIn | SwapOut


class Companions(Struct, frozen=True):
    """The keep-alive and eviction policies that a queueing policy runs with by default."""

    keepalive: str = "none"
    eviction: str = "lru"
    keepalive_params: dict[str, float] = {}
    pool_slots: int | None = None  # maximum number of sandboxes per device; None means no limit


class Queueing(ABC):
    """Decides which flow runs next, and where. One instance serves the flows of one domain."""

    params_type: ClassVar[type[Params]] = Params
    pools_slots: ClassVar[bool] = False  # an idle sandbox may be used on a full device while any other has a free slot

    def __init__(self, params: Params, generator: RandomSource) -> None:
        self.params = params
        self.generator = generator
        self.advice: list[Advice] = []  # memory to move; the scheduler takes all of it before it asks for a choice

    @classmethod
    def companions(cls, params: Params) -> Companions:
        """Return the default keep-alive and eviction policies for this one."""
        return Companions()

    @abstractmethod
    def choose(self, view: View) -> Choice | None:
        """Return the next dispatch, or None to wait. Called again after each dispatch until it returns None."""

    def choose_alone(self, flow: FlowView, view: View) -> Choice | None:
        """Return the dispatch of an invocation that has just arrived while nothing waits, or None to queue it first.

        It is the choice to which `enqueued` and `choose` would lead, in an idle sandbox. The invocation is in no queue,
        and `enqueued` is not called. If this returns None, it has no side effects.
        """
        return None

    def repeats(self, choice: Choice, view: View) -> bool:
        """Return whether `choose` would lead to the same choice again, for the next invocation of the flow.

        The last invocation was handed ahead there, another one can be, and no other flow has anything queued. If this
        returns False, it has no side effects that `choose` would not have.
        """
        return False

    def opened(self, flow: FlowView, view: View) -> None:
        """Called when a flow of this domain is created."""

    def closed(self, flow: FlowView, view: View) -> None:
        """Called when a flow is removed. Its queue is empty, and no hook or choice may name it again."""

    def redeployed(self, flow: FlowView, view: View) -> None:
        """Called when the flow's function has a new version. Estimates and weight may have changed."""

    def devices_changed(self, view: View) -> None:
        """Called when a device is added or lost."""

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        """Called when the invocation has been added to the end of its flow's queue."""

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        """Called when the invocation has left the queue without being dispatched."""

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        """Called when the flow's head has left the queue and is in flight."""

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        """Called when the invocation is no longer in flight, however it ended. Estimates are up to date."""

    def moved(self, flow: FlowView, invocation: InvocationView, source: DeviceView, to: DeviceView, view: View) -> None:
        """Called when the sandbox of an invocation in flight has moved to another device."""

    def virtual_time(self, flow: FlowView) -> float | None:
        """Return the service that the flow has had by the policy's count, for display, or None if it has no count."""
        return None

    def wake_at(self) -> float | None:
        """Return when to call again even if nothing happens, or None. No side effects."""
        return None

    def residency_changed(self, flow: FlowView, device: DeviceView) -> None:
        """Called when `flow.resident_on(device)` has changed."""

    def expired(self, flow: FlowView, view: View) -> None:
        """Called when keep-alive has ended for the idle flow."""

    def violations(self, view: View) -> Sequence[str]:
        """Return errors in the policy's own state, for the invariants check."""
        return ()


class ExpiryAction(StrEnum):
    """The action that keep-alive takes for idle sandboxes when their time is over."""

    SWAP_OUT = "swap_out"
    LOAD = "load"
    STOP = "stop"
    START = "start"  # ahead of calls, if there is room (`provisioning/`); only for flows
    ASK = "ask"  # nothing but to ask the policy again; only for flows


ENDS_KEEP_ALIVE = frozenset({ExpiryAction.SWAP_OUT, ExpiryAction.STOP})


class Expiry(Struct, frozen=True, gc=False):
    """An action for a flow or sandbox that is still idle at that time."""

    at: float
    action: ExpiryAction
    sandboxes: int = 0  # that the flow shall have after `START`, or that stay after `STOP`
    reason: str = "keep-alive is over"  # for people to read


class KeepAlive:
    """Decides how long idle flows and sandboxes stay. None means until they are evicted."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    def sandbox_idled(self, sandbox: SandboxView, *, now: float) -> Expiry | None:
        """Return when a sandbox that became idle expires. Its flow may be busy in others. No side effects."""
        return None

    def flow_idled(self, flow: FlowView, *, now: float) -> Expiry | None:
        """Return when the sandboxes of a flow expire, now that nothing of it is queued or in flight."""
        return None

    def flow_called(self, flow: FlowView, *, now: float) -> None:
        """Called when an invocation has arrived, before it is queued. Policies that ignore it pay nothing for it."""

    def flow_closed(self, flow: FlowView) -> None:
        """Forget everything about a flow that is removed."""

    def flow_expired(self, flow: FlowView, done: Expiry, *, now: float) -> Expiry | None:
        """Return the next expiry of a flow that stays idle, after this one has been carried out."""
        return None


class Packing(ABC):
    """Chooses the device for a new sandbox with a declared share, among devices that are otherwise equal."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    def opened(self, flow: FlowView) -> None:
        """Called when a flow is new, or requests another slice than before."""

    def closed(self, flow: FlowView) -> None:
        """Called when a flow is removed."""

    @abstractmethod
    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        """Return one of the devices. There are at least two, and all have room. No side effects."""


class Batching(ABC):
    """Decides how many calls of a function run together. Only functions that declare `batch` are asked about."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    @abstractmethod
    def size(self, flow: FlowView, times: BatchTimes, device: DeviceView, *, now: float) -> int:
        """Return how many of the flow's first queued calls run together on the device. The scheduler limits it."""

    def ran(self, flow: FlowView, times: BatchTimes, kind: str, size: int, run_s: float, *, late: bool) -> None:
        """Called when a batch has run on a device of that kind. `late`: a member has missed its deadline."""

    def forget(self, flow: FlowView) -> None:
        """Called when the flow is removed or its function has a new version."""


class SliceView(Protocol):
    """A running sandbox's slice of a device: the share it requested, and the limit up to which it may borrow."""

    @property
    def sandbox(self) -> int: ...
    @property
    def request(self) -> float: ...
    @property
    def limit(self) -> float: ...


class Allotment(NamedTuple):
    """The parts of a device's compute that a sandbox gets."""

    share: float  # minimum while others want compute, too
    ceiling: float  # maximum


class Sharing(ABC):
    """Divides the compute of one device among the sandboxes that run there. It has no state and no side effects."""

    params_type: ClassVar[type[Params]] = Params
    depends_on_others: ClassVar[bool] = False  # whether an allotment depends on which others run

    def __init__(self, params: Params) -> None:
        self.params = params

    @abstractmethod
    def allot(self, slices: Sequence[SliceView]) -> Sequence[Allotment]:
        """Return the allotment of each slice, in the same order. The requests add up to at most 1."""


class FetchLimits(Struct, frozen=True, gc=False):
    """The budget of prefetches that may be in flight at once."""

    bytes: int
    fetches: int


class FileChoice(NamedTuple):
    """A file to fetch before it is opened, and the reason, for people to read."""

    file: LikelyFile
    reason: str


class Prefetching(ABC):
    """Decides which of the predicted files are fetched to the node before they are opened."""

    params_type: ClassVar[type[Params]] = Params
    wants_predictions: ClassVar[bool] = True  # whether the core requests predictions

    def __init__(self, params: Params) -> None:
        self.params = params
        self.limits = FetchLimits(0, 0)

    @abstractmethod
    def choose(
        self, model: str, files: Sequence[LikelyFile], in_flight: Container[tuple[str, str]]
    ) -> Sequence[FileChoice]:
        """Return the files of a new prediction to fetch, in that order. No side effects.

        `in_flight` has the dataset and path of files that are being fetched. Those that are not chosen are cancelled.
        """


class Evictable(Protocol):
    """Anything that can be evicted and loaded again at a cost: a sandbox's memory, a pool slot, a cached file."""

    @property
    def id(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def reload_s(self) -> float: ...
    @property
    def uses(self) -> int: ...
    def next_use_s(self, now: float) -> float | None: ...


E = TypeVar("E", bound=Evictable)


class Eviction(ABC, Generic[E]):
    """Decides which entry is evicted first. One instance serves one device's memory, or one pool."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    @abstractmethod
    def add(self, entry: E, *, now: float) -> None:
        """Add an entry that has just been used and may be evicted from now on."""

    @abstractmethod
    def remove(self, entry: E) -> None:
        """Remove an entry that is in use, if it is there."""

    def forget(self, entry: E) -> None:
        """Forget an entry that is gone, as a victim or for another reason."""
        self.remove(entry)

    @abstractmethod
    def victim(self, *, now: float) -> E | None:
        """Return the entry to evict next, or None if there is none. It stays listed until it is removed."""
