"""The kinds of policy, and what each may decide. A policy looks at a view and answers; it performs nothing.

The hooks tell a policy what the scheduler has just done, so that it can keep its own books (tags, heaps) and
answer in O(log n). They may change the policy's own state and nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from enum import StrEnum
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from aliquot.core.events import LikelyFile
from aliquot.core.view import DeviceView, FlowView, InvocationView, SandboxView, View


class Generator(Protocol):
    """The seeded source of chance that policies are given; `random.Random` is one."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """A policy's parameters; a policy that has any declares a subclass and names it as its `params_type`."""


class Choice(Struct, frozen=True, gc=False):
    """Dispatch the head of `flow` on `device`: into `sandbox`, or into a new one when that is None."""

    flow: FlowView
    device: DeviceView
    sandbox: SandboxView | None
    reason: str


class Prefetch(Struct, frozen=True, gc=False):
    """Bring the memory of the flow's idle sandboxes back, as far as it fits into free memory.

    With `displace`, room is made for the most recently used of them, in eviction order.
    """

    flow: FlowView
    displace: bool = False


class SwapOut(Struct, frozen=True, gc=False):
    """Move the memory of the flow's idle sandboxes to the host."""

    flow: FlowView


Advice: TypeAlias = Prefetch | SwapOut


class Companions(Struct, frozen=True):
    """The keep-alive and eviction that a queueing policy runs with unless the user says otherwise."""

    keepalive: str = "none"
    eviction: str = "lru"
    keepalive_params: dict[str, float] = {}
    pool_slots: int | None = None  # sandboxes per device; None: no bound


class Queueing(ABC):
    """Who runs next, and where. One instance serves one domain: flows that compete for the same devices."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params, generator: Generator) -> None:
        self.params = params
        self.generator = generator

    @classmethod
    def companions(cls, params: Params) -> Companions:
        """The other two policies that belong to this one."""
        return Companions()

    @abstractmethod
    def choose(self, view: View) -> Choice | None:
        """The next dispatch, or None to wait. Asked again after each one until it answers None."""

    def advise(self, view: View) -> Sequence[Advice]:
        """Memory to move, since last asked. Asked before every `choose`."""
        return ()

    def opened(self, flow: FlowView, view: View) -> None:
        """A flow of this domain exists from now on."""

    def closed(self, flow: FlowView, view: View) -> None:
        """The flow is gone: its queue is empty, and it is not spoken of again, nor may it be."""

    def redeployed(self, flow: FlowView, view: View) -> None:
        """The flow's function has a new version: estimates and weight may have changed."""

    def devices_changed(self, view: View) -> None:
        """A device came or went."""

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        """The invocation is now the last of its flow's queue."""

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        """The invocation has left the queue without being dispatched."""

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        """The flow's head has left the queue and is in flight."""

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        """The invocation is no longer in flight, however it ended; estimates are up to date."""

    def virtual_time(self, flow: FlowView) -> float | None:
        """How much service the flow has had by the policy's own count, for people who watch; None: it keeps none."""
        return None

    def wake_at(self) -> float | None:
        """When to be asked again even if nothing happens until then; None: no need. No side effects."""
        return None

    def residency_changed(self, flow: FlowView, device: DeviceView) -> None:
        """`flow.resident_on(device)` has changed."""

    def expired(self, flow: FlowView, view: View) -> None:
        """Keep-alive has given up waiting for the idle flow."""

    def violations(self, view: View) -> Sequence[str]:
        """What is wrong with the policy's own books, for the invariants check; normally nothing."""
        return ()


class ExpiryAction(StrEnum):
    SWAP_OUT = "swap_out"
    LOAD = "load"
    STOP = "stop"


class Expiry(Struct, frozen=True, gc=False):
    """At that moment, if still idle, do this."""

    at: float
    action: ExpiryAction


class KeepAlive:
    """How long what is idle stays. It is asked each time something turns idle; None means until evicted."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    def sandbox_idled(self, sandbox: SandboxView, *, now: float) -> Expiry | None:
        """A sandbox has nothing to do, though its flow may be busy elsewhere. No side effects."""
        return None

    def flow_idled(self, flow: FlowView, *, now: float) -> Expiry | None:
        """A flow has nothing queued and nothing in flight; the answer holds for all its idle sandboxes."""
        return None

    def flow_closed(self, flow: FlowView) -> None:
        """The flow is gone: forget what was known about it."""

    def flow_expired(self, flow: FlowView, done: Expiry, *, now: float) -> Expiry | None:
        """What was to be done for the idle flow has been done; what comes next, if it stays idle? No side effects."""
        return None


class Packing(ABC):
    """Where a new sandbox with a declared share goes, of the devices that are otherwise as good."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    def opened(self, flow: FlowView) -> None:
        """A flow is there, or asks for another slice than before."""

    def closed(self, flow: FlowView) -> None:
        """The flow is gone."""

    @abstractmethod
    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        """One of these, which all have room; there are two at least. No side effects."""


class Slice(Protocol):
    """A sandbox at work on a device: what it asked for, and how far it may stretch."""

    @property
    def sandbox(self) -> int: ...
    @property
    def request(self) -> float: ...
    @property
    def limit(self) -> float: ...


class Allotment(NamedTuple):
    """Parts of a device's compute."""

    share: float  # what it gets at least while others want it too
    ceiling: float  # what it gets at most


class Sharing(ABC):
    """How the compute of one device is divided among those at work there. No side effects, no memory."""

    params_type: ClassVar[type[Params]] = Params
    looks_around: ClassVar[bool] = False  # whether what one gets depends on who else is at work

    def __init__(self, params: Params) -> None:
        self.params = params

    @abstractmethod
    def allot(self, slices: Sequence[Slice]) -> Sequence[Allotment]:
        """What each gets, in their order; their requests add up to at most 1."""


class Limits(Struct, frozen=True, gc=False):
    """How much may be on its way at once that nobody has asked for yet."""

    bytes: int
    fetches: int


class Wish(NamedTuple):
    """A file to bring before anyone asks, and why, in words for people."""

    file: LikelyFile
    reason: str


class Prefetching(ABC):
    """Which of the files that are likely to be opened are brought to the node before anyone asks."""

    params_type: ClassVar[type[Params]] = Params
    asks: ClassVar[bool] = True  # whether it wants predictions at all

    def __init__(self, params: Params) -> None:
        self.params = params
        self.limits = Limits(0, 0)

    @abstractmethod
    def choose(self, model: str, files: Sequence[LikelyFile], under_way: Container[tuple[str, str]]) -> Sequence[Wish]:
        """What of a new prediction to bring, in that order. `under_way`: dataset and path of what is brought already.

        What of that is not chosen is cancelled. No side effects.
        """


class Evictable(Protocol):
    """Anything that can be brought back at a price: a sandbox's memory, a pool slot, a cached file."""

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
    """Who goes first when there is no room. One instance serves one device's memory, or one pool."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    @abstractmethod
    def add(self, entry: E, *, now: float) -> None:
        """The entry has just been used and may go from now on."""

    @abstractmethod
    def remove(self, entry: E) -> None:
        """The entry is in use: nobody to go. Passed over when it is not there."""

    def forget(self, entry: E) -> None:
        """The entry is gone from what is kept here: as the victim that was named, or for reasons of its own."""
        self.remove(entry)

    @abstractmethod
    def victim(self, *, now: float) -> E | None:
        """Who goes next; it stays listed until removed. None when there is nobody."""
