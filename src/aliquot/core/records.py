"""The core's own books: what it knows about each invocation, flow, sandbox and device. Policies see `view`."""

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING

from aliquot.core import lifecycle
from aliquot.core.errors import EventError
from aliquot.core.interfaces import Allotment, Eviction, Expiry, ExpiryAction
from aliquot.core.lifecycle import (
    HOLDS_DEVICE_MEMORY,
    HOST_WARM,
    InvocationChange,
    InvocationState,
    SandboxChange,
    SandboxState,
)
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec
from aliquot.core.places import place_of, place_text
from aliquot.core.view import DeviceView, SandboxView

if TYPE_CHECKING:
    from aliquot.core.domain import Domain

EWMA_KEEP, EWMA_NEW = 0.9, 0.1  # of run times
GAP_MEAN, GAP_DEVIATION = 1 / 8, 1 / 4  # of the gaps between arrivals, smoothed as round trips are in TCP


class Session:
    """Invocations that belong together; while it lives, the sandboxes that served it are kept for it."""

    __slots__ = ("held", "key", "living")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key  # tenant and name
        self.living = True
        self.held: dict[int, Sandbox] = {}


class Invocation:
    """One call, from its arrival to its one end."""

    __slots__ = (
        "arrived", "cost_limit", "deadline", "dispatched", "flow", "id", "number", "run_s", "sandbox", "session",
        "share", "state", "story",
    )  # fmt: skip

    def __init__(self, name: str, number: int, flow: "Flow", arrived: float) -> None:
        self.id = name
        self.number = number
        self.flow = flow
        self.arrived = arrived
        self.deadline: float | None = None
        self.cost_limit: float | None = None
        self.session: Session | None = None
        self.state = InvocationState.QUEUED
        self.sandbox: Sandbox | None = None
        self.share = 0.0  # held on its devices while in flight
        self.dispatched: float = 0
        self.run_s: float | None = None  # on the device, once it has run
        self.story: list[tuple[float, str]] = [(arrived, "arrived")]

    @property
    def device(self) -> "Device | None":
        return self.sandbox.device if self.sandbox else None

    @property
    def devices(self) -> "tuple[Device, ...]":
        return self.sandbox.devices if self.sandbox else ()

    def take_slots(self, dispatch: int) -> None:
        """On each device of its sandbox; `dispatch` counts up."""
        spec, devices = self.flow.spec, self.devices
        self.share = 0.0
        for device in devices:
            share = spec.share_on(device.spec)
            device.take_slot(share)
            device.last_dispatch = dispatch
            self.share += share

    def free_slots(self) -> None:
        devices = self.devices
        each = self.share / len(devices)
        for device in devices:
            device.free_slot(each)

    def change(self, change: InvocationChange, now: float) -> None:
        after = lifecycle.INVOCATION.get((self.state, change))
        if after is None:
            raise EventError(f"{change} while {self.state}: {self.tell()}")
        self.state = after
        self.story.append((now, change))

    def tell(self) -> str:
        """The story of this invocation, for errors."""
        place = f", {self.sandbox.tell()}" if self.sandbox else ""
        steps = ", ".join(f"{what} at {when}" for when, what in self.story)
        return f"invocation {self.id} of {self.flow.key} ({steps}{place})"


class Slice:
    """A sandbox's part of its device's compute."""

    __slots__ = ("allotment", "limit", "request", "sandbox")

    def __init__(self, sandbox: int, request: float, limit: float) -> None:
        self.sandbox = sandbox
        self.request = request
        self.limit = limit
        self.allotment = Allotment(0, 0)  # as the shell was last told


class Sandbox:
    """One process or container of one flow. It is idle when no invocation holds it.

    It is on one device, or on several whole ones (`places.py`): then it is shelved with the first of them.
    """

    __slots__ = (
        "bytes", "device", "devices", "expiry", "flow", "host_bytes", "id", "invocation", "overdue", "place",
        "reload_s", "retired", "session", "slice", "state", "timer_at", "unwanted", "uses",
    )  # fmt: skip

    def __init__(self, number: int, flow: "Flow", devices: "tuple[Device, ...]") -> None:
        device = devices[0]
        self.id = number
        self.flow = flow
        self.device = device
        self.devices = devices
        self.place = place_of([each.spec for each in devices])
        self.bytes = flow.spec.memory_bytes  # on each of them
        self.host_bytes = flow.spec.host_bytes
        self.reload_s = flow.spec.times_on(device.spec).load_s or 0  # to bring its bytes back
        self.state = SandboxState.STARTING
        self.invocation: Invocation | None = None
        self.uses = 0  # invocations it has been given
        self.unwanted = False  # to be swapped out as soon as its bytes have arrived
        self.retired: str | None = None  # why it must end as soon as it is idle
        self.session: Session | None = None  # that holds it: idle, warm, and the last it served was of that session
        self.slice: Slice | None = None  # of an accelerator
        self.expiry: Expiry | None = None
        self.overdue: ExpiryAction | None = None  # what keep-alive wanted while a session held it
        self.timer_at: float | None = None

    def change(self, change: SandboxChange) -> None:
        after = lifecycle.SANDBOX.get((self.state, change))
        if after is None:
            raise EventError(f"{change} while {self.state}: {self.tell()}")
        self.state = after

    @property
    def swappable(self) -> bool:
        """Where memory is unbounded there is nothing to gain."""
        return any(device.spec.memory_bytes is not None for device in self.devices)

    @property
    def holds_memory(self) -> bool:
        return self.state in HOLDS_DEVICE_MEMORY

    def next_use_s(self, now: float) -> float | None:
        """How long from now its flow's next arrival is to be expected; None when there is nothing to go by."""
        gap_s = self.flow.recent_interarrival_s
        return None if gap_s is None else abs(self.flow.last_arrival + gap_s - now)

    def tell(self) -> str:
        return f"sandbox {self.id} of {self.flow.key} on {place_text(self.place)}, {self.state}"


class Shelf:
    """A flow's idle sandboxes on one device, each kind in order of use."""

    __slots__ = ("device", "others", "resident")

    def __init__(self, device: "Device") -> None:
        self.device = device
        self.resident: dict[int, Sandbox] = {}
        self.others: dict[int, Sandbox] = {}


class Flow:
    """The queue of one tenant's function, and what has been learned about it."""

    __slots__ = (
        "arrivals", "closed", "domain", "expiry", "first_arrival", "held", "held_back", "in_flight", "index",
        "interarrival_deviation_s", "key", "last_arrival", "last_serviced", "misfit", "queue", "queued",
        "recent_interarrival_s", "run_estimate_s", "run_estimates_s", "sandboxes", "shelves", "spec",
        "tenant_weight", "timer_at", "weight",
    )  # fmt: skip

    def __init__(self, index: int, key: FlowKey, spec: FunctionSpec, domain: "Domain") -> None:
        self.index = index
        self.key = key
        self.spec = spec
        self.domain = domain
        self.tenant_weight: float = 1  # the operator's
        self.weight = spec.weight  # on one level: the tenant's times its own
        self.queue: OrderedDict[str, Invocation] = OrderedDict()
        self.queued = 0  # how many those are: asked for more often than anything else
        self.held_back: OrderedDict[str, Invocation] = OrderedDict()  # see `waiting.py`
        self.closed = False  # its function is gone; what is in flight may finish
        self.in_flight = 0
        self.arrivals = 0
        self.first_arrival: float = 0
        self.last_arrival: float = 0
        self.last_serviced: float = 0
        self.recent_interarrival_s: float | None = None
        self.interarrival_deviation_s: float = 0
        self.run_estimate_s: float | None = None
        self.run_estimates_s: dict[str, float] = {}
        self.sandboxes: dict[int, Sandbox] = {}
        self.shelves: dict[int, Shelf] = {}
        self.held = 0  # idle sandboxes that a session holds
        self.misfit: str | None = None
        self.expiry: Expiry | None = None
        self.timer_at: float | None = None

    @property
    def head(self) -> Invocation:
        return next(iter(self.queue.values()))

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not self.queued and not self.in_flight

    @property
    def mean_interarrival_s(self) -> float | None:
        if self.arrivals < 2:  # noqa: PLR2004 - one arrival has no distance
            return None
        return (self.last_arrival - self.first_arrival) / (self.arrivals - 1)

    def saw_arrival(self, now: float) -> None:
        if not self.arrivals:
            self.first_arrival = now
        else:
            self._saw_gap(now - self.last_arrival)
        self.arrivals += 1
        self.last_arrival = now

    def _saw_gap(self, gap_s: float) -> None:
        known = self.recent_interarrival_s
        if known is None:
            self.recent_interarrival_s, self.interarrival_deviation_s = gap_s, gap_s / 2
            return
        self.interarrival_deviation_s += GAP_DEVIATION * (abs(gap_s - known) - self.interarrival_deviation_s)
        self.recent_interarrival_s = known + GAP_MEAN * (gap_s - known)

    def saw_run(self, kind: str, run_s: float) -> None:
        """Learn from a completed run; what was declared is the prior."""
        known = self.run_estimate_s
        self.run_estimate_s = run_s if known is None else EWMA_KEEP * known + EWMA_NEW * run_s
        known = self.run_estimates_s.get(kind)
        self.run_estimates_s[kind] = run_s if known is None else EWMA_KEEP * known + EWMA_NEW * run_s

    def forget_runs(self) -> None:
        self.run_estimate_s = None
        self.run_estimates_s = {}

    def add_priors(self, devices: "list[Device]") -> None:
        """Take declared run times as estimates where nothing is known: by kind, and the first device's in general."""
        for device in devices:
            run_s = self.spec.times_on(device.spec).run_s
            if run_s is None or not self.spec.runs_on(device.spec):
                continue
            self.run_estimates_s.setdefault(device.spec.kind, run_s)
            if self.run_estimate_s is None:
                self.run_estimate_s = run_s

    def shelf(self, device: "Device") -> Shelf:
        shelf = self.shelves.get(device.index)
        if shelf is None:
            shelf = self.shelves[device.index] = Shelf(device)
        return shelf

    def idle_on(self, device: DeviceView) -> Sandbox | None:
        """The most recently used idle sandbox there, one in device memory before one that is not; see `nearness`."""
        shelf = self.shelves.get(device.index)
        if shelf is None:
            return None
        kind = shelf.resident or shelf.others
        if self.held and kind:
            return self._nearest(kind)
        return kind[next(reversed(kind))] if kind else None

    def idle_places(self) -> "list[tuple[Device, Sandbox]]":
        """The devices on which the flow has an idle sandbox, and which it would be: see `idle_on`."""
        if self.held:
            return self._places_by_nearness()
        places = []
        for shelf in self.shelves.values():
            kind = shelf.resident or shelf.others
            if kind:
                places.append((shelf.device, kind[next(reversed(kind))]))
        return places

    def nearness(self, sandbox: SandboxView) -> int:
        """0: the session of the flow's head holds it, 1: nobody does, 2: another does. Decides between equals only."""
        if not self.held:
            return 0
        session = self.head.session if self.queue else None
        holder = sandbox.session
        return 0 if holder is session else 1 if holder is None else 2

    def _nearest(self, kind: "dict[int, Sandbox]") -> Sandbox:
        """The most recently used of the nearest; what another session holds is taken from the one that waited longest.

        A flow has no more idle sandboxes on a device than ran there at once: there are few to look at.
        """
        session = self.head.session if self.queue else None
        free = last = None
        for sandbox in reversed(kind.values()):
            if sandbox.session is session:
                return sandbox
            if free is None and sandbox.session is None:
                free = sandbox
            last = sandbox
        nearest = free or last
        assert nearest is not None  # noqa: S101 - there is one at least
        return nearest

    def _places_by_nearness(self) -> "list[tuple[Device, Sandbox]]":
        places = [
            (shelf.device, self._nearest(shelf.resident or shelf.others))
            for shelf in self.shelves.values()
            if shelf.resident or shelf.others
        ]
        return sorted(places, key=lambda place: self.nearness(place[1]))

    def resident_on(self, device: DeviceView) -> bool:
        """Whether an idle sandbox of the flow is in that device's memory."""
        shelf = self.shelves.get(device.index)
        return bool(shelf and shelf.resident)

    def swapped_out(self) -> list[Sandbox]:
        """Idle sandboxes whose bytes are on the host, the most recently used on each device first."""
        return [
            sandbox
            for shelf in reversed(self.shelves.values())
            if shelf.others
            for sandbox in reversed(shelf.others.values())
            if sandbox.state is HOST_WARM
        ]

    def idle_sandboxes(self) -> list[Sandbox]:
        return [
            sandbox
            for shelf in self.shelves.values()
            for kind in (shelf.resident, shelf.others)
            for sandbox in kind.values()
        ]


class Device:
    """A device's slots and bytes, and who may be moved off it."""

    __slots__ = (
        "at_work", "evictable_bytes", "freed", "held", "held_bytes", "index", "last_dispatch", "measured",
        "memory_order", "pool_order", "resident_bytes", "running", "sandboxes", "shares_used", "slots", "spec",
    )  # fmt: skip

    def __init__(self, index: int, spec: DeviceSpec, memory: Eviction[Sandbox], pool: Eviction[Sandbox]) -> None:
        self.index = index
        self.spec = spec
        self.slots = spec.concurrency  # how many may be in flight
        self.memory_order = memory  # idle and resident: may be swapped out
        self.pool_order = pool  # idle: may be stopped; kept where the pool is bounded
        self.running = 0
        self.freed = 0  # how often a slot or memory has been given back
        self.shares_used: float = 0
        self.measured: float | None = None
        self.resident_bytes = 0
        self.evictable_bytes = 0
        self.held: dict[int, Sandbox] = {}  # by sessions, least recently used first: these are in neither order
        self.held_bytes = 0
        self.last_dispatch = -1
        self.at_work: dict[int, Slice] = {}  # by sandbox, where what one gets depends on the others
        self.sandboxes: dict[int, Sandbox] = {}

    @property
    def utilisation(self) -> float:
        """As measured; until somebody measures, the shares in use. What was measured before it fell idle is stale."""
        return self.shares_used if self.measured is None or not self.running else self.measured

    @property
    def free_bytes(self) -> float:
        return inf if self.spec.memory_bytes is None else self.spec.memory_bytes - self.resident_bytes

    def take_slot(self, share: float) -> None:
        self.running += 1
        self.shares_used += share

    def free_slot(self, share: float) -> None:
        self.running -= 1
        self.freed += 1
        # Starting again from nought when nothing runs keeps rounding errors from adding up.
        self.shares_used = self.shares_used - share if self.running else 0
