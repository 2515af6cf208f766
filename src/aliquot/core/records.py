"""The core's records of sessions, invocations and sandboxes. Policies see them through the protocols in `view`.

Flows and devices have modules of their own (`flow.py`, `device.py`).
"""

from typing import TYPE_CHECKING

from aliquot.core.batches import Batch
from aliquot.core.errors import EventError
from aliquot.core.interfaces import Allotment, Expiry, ExpiryAction
from aliquot.core.lifecycle import (
    HOLDS_DEVICE_MEMORY,
    INVOCATION,
    QUEUED,
    SANDBOX,
    InvocationChange,
    SandboxChange,
    SandboxState,
)
from aliquot.core.places import place_of, place_text

if TYPE_CHECKING:
    from aliquot.core.admission.lanes import Lane
    from aliquot.core.admission.objective import Objective
    from aliquot.core.device import Device
    from aliquot.core.flow import Flow
    from aliquot.core.provisioning.relocation import SandboxMove


class SessionState:
    """A session of related invocations. While it is alive, sandboxes that served it are kept for it."""

    __slots__ = ("alive", "kept", "key")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key  # tenant and name
        self.alive = True
        self.kept: dict[int, Sandbox] = {}


class Invocation:
    """One call of a function, from its arrival to its end."""

    __slots__ = (
        "alone", "arrived", "batch", "cancelled", "cost_limit", "deadline", "dispatched", "flow", "id", "number",
        "objective", "own_sandbox", "run_s", "sandbox", "session", "share", "share_held", "state", "story",
    )  # fmt: skip

    def __init__(self, name: str, number: int, flow: "Flow", arrived: float) -> None:
        self.id = name
        self.number = number
        self.flow = flow
        self.arrived = arrived
        self.deadline: float | None = None
        self.cost_limit: float | None = None
        self.objective: Objective | None = None  # with a deadline or a cost limit, if the admission policy decides
        self.session: SessionState | None = None
        self.state = QUEUED
        self.sandbox: Sandbox | None = None
        self.share = 0.0  # part of compute that it uses, summed over its devices
        self.share_held = True  # while in flight; one handed ahead gets the slice of the call before it
        self.dispatched: float = 0
        self.run_s: float | None = None  # measured on the device, once it has run
        self.cancelled: str | None = None  # why, until the shell reports which calls handed ahead have begun
        self.own_sandbox = False  # it is not handed ahead, because the shell cannot, or has taken it back before
        self.batch: Batch | None = None  # while it is in flight together with others
        self.alone = False  # its batch failed, and it runs again without others
        self.story: list[tuple[float, str]] = [(arrived, "arrived")]

    def arrive(self, name: str, number: int, now: float) -> None:
        """Take the name of the call that has arrived for a stage which was planned before."""
        self.id = name
        self.number = number
        self.arrived = now
        self.story = [(now, "arrived")]

    @property
    def batch_size(self) -> int:
        """Return how many invocations were dispatched together with it, itself included."""
        return 1 if self.batch is None else self.batch.size

    @property
    def device(self) -> "Device | None":
        return self.sandbox.device if self.sandbox else None

    @property
    def devices(self) -> "tuple[Device, ...]":
        return self.sandbox.devices if self.sandbox else ()

    def take_slots(self, dispatch: int, *, ahead: bool = False) -> None:
        """Take a slot on each device of the sandbox. `dispatch` is the number of this dispatch, counted from 0.

        A call that is handed `ahead` in a sandbox with a slice takes no compute until its turn.
        """
        flow = self.flow
        declared, tenant = flow.spec.share, flow.key[0]
        total = 0.0
        self.share_held = not (ahead and self.sandbox is not None and self.sandbox.slice is not None)
        for device in () if self.sandbox is None else self.sandbox.devices:
            share = min(declared, 1.0) if declared and device.sliced else device.default_share
            device.take_slot(share if self.share_held else 0.0, tenant)
            device.last_dispatch = dispatch
            total += share
        self.share = total

    def pass_share(self, following: "Invocation") -> None:
        """Give the compute that it holds to the call that its sandbox runs next, if that one holds none."""
        if not following.share_held:
            self.share_held, following.share_held = False, True

    def free_slots(self) -> None:
        devices = self.devices
        each = self.share / len(devices) if self.share_held else 0.0
        tenant = self.flow.key[0]
        for device in devices:
            device.free_slot(each, tenant)

    def change(self, change: InvocationChange, now: float) -> None:
        after = INVOCATION.get((self.state, change))
        if after is None:
            raise EventError(f"{change} while {self.state}: {self.describe()}")
        self.state = after
        self.story.append((now, change))

    def describe(self) -> str:
        """Return the story of this invocation, for error messages."""
        place = f", {self.sandbox.describe()}" if self.sandbox else ""
        steps = ", ".join(f"{what} at {when}" for when, what in self.story)
        return f"invocation {self.id} of {self.flow.key} ({steps}{place})"


class Slice:
    """A sandbox's part of the compute of its device."""

    __slots__ = ("allotment", "limit", "request", "sandbox")

    def __init__(self, sandbox: int, request: float, limit: float) -> None:
        self.sandbox = sandbox
        self.request = request
        self.limit = limit
        self.allotment = Allotment(0, 0)  # as last sent to the shell


class StopCandidate:
    """An idle sandbox in an order of stopping. To have it again later costs a cold start, not only its transfer.

    `bytes` is what stopping it frees: its host memory, or 1 where a pool slot is needed.
    """

    __slots__ = ("bytes", "id", "reload_s", "sandbox")

    def __init__(self, sandbox: "Sandbox", size: int, restart_s: float) -> None:
        self.id = sandbox.id
        self.sandbox = sandbox
        self.bytes = size
        self.reload_s = restart_s

    @property
    def uses(self) -> int:
        return self.sandbox.uses

    def next_use_s(self, now: float) -> float | None:
        return self.sandbox.next_use_s(now)


class Sandbox:
    """One process or container of one flow. It is idle while no invocation is assigned to it.

    It is on one device, or on several whole ones (`places.py`). Its flow lists it with the first of them.
    """

    __slots__ = (
        "ahead", "batch", "began", "bytes", "deferred_expiry", "device", "devices", "expiry", "flow", "host",
        "host_bytes", "host_candidate", "id", "invocation", "lane", "move", "occupies", "place", "planned",
        "pool_candidate", "ready_at", "reload_s", "retired", "run_bytes", "session", "sizes_run", "slice",
        "state", "timer_at", "unload_when_ready", "unused", "uses",
    )  # fmt: skip

    def __init__(self, number: int, flow: "Flow", devices: "tuple[Device, ...]") -> None:
        device = devices[0]
        self.id = number
        self.flow = flow
        self.device = device
        self.devices = devices
        self.host = device.host  # memory of its node
        self.place = place_of([each.spec for each in devices])
        self.bytes = flow.spec.memory_bytes  # on each device
        self.run_bytes = 0  # held on each device while a call is in flight
        self.host_bytes = flow.spec.host_bytes
        times = flow.spec.times_on(device.spec)
        self.reload_s = times.load_s or 0  # to load its bytes to the device again
        self.pool_candidate = StopCandidate(self, 1, max(times.cold_s, self.reload_s))
        self.host_candidate = StopCandidate(self, self.host_bytes, max(times.cold_s, self.reload_s))
        self.state = SandboxState.STARTING
        self.invocation: Invocation | None = None
        self.ahead: list[Invocation] = []  # handed to it while it is busy, in the order in which they will run
        self.batch: Batch | None = None  # of its invocation, if that does not run alone
        self.sizes_run: set[int] = set()  # sizes of batches that it has run
        self.uses = 0  # invocations assigned to it so far
        self.began: float | None = None  # when its start began; None if another scheduler started it
        self.unused = False  # started ahead, and no call has used it yet (`provisioning/`)
        self.unload_when_ready = False  # keep-alive ended while its bytes were still being loaded
        self.retired: str | None = None  # why it must stop as soon as it is idle
        self.session: SessionState | None = None  # the session it is kept for; it is idle and warm then
        self.slice: Slice | None = None  # only on accelerators
        self.expiry: Expiry | None = None
        self.deferred_expiry: ExpiryAction | None = None  # keep-alive action that fell due while a session kept it
        self.timer_at: float | None = None
        self.ready_at: float = 0  # when that is expected to end, at the latest
        self.lane: Lane | None = None  # that it is pinned to, because blocks count on it; it is not idle then
        self.occupies: tuple[Lane, ...] = ()  # lanes that its run takes
        self.planned = False  # its run is counted in the plan of its devices
        self.move: SandboxMove | None = None  # while it moves to another device

    @property
    def idle(self) -> bool:
        """Return whether any call of its flow may have it."""
        return self.invocation is None and self.lane is None

    def change(self, change: SandboxChange) -> None:
        after = SANDBOX.get((self.state, change))
        if after is None:
            raise EventError(f"{change} while {self.state}: {self.describe()}")
        self.state = after

    @property
    def in_flight(self) -> "list[Invocation]":
        """Return the invocation assigned to it, or all members of its batch, and those handed ahead."""
        if self.batch is not None:
            return [*self.batch.members, *self.ahead]
        return self.ahead if self.invocation is None else [self.invocation, *self.ahead]

    @property
    def run_name(self) -> str | None:
        """Return the name of the invocation that the shell reports when its run has finished."""
        if self.batch is not None:
            return self.batch.leader
        return None if self.invocation is None else self.invocation.id

    @property
    def slots_taken(self) -> int:
        """Return the slots that its invocations hold on each of its devices."""
        return (self.invocation is not None) + len(self.ahead)

    @property
    def share_taken(self) -> float:
        """Return the compute that its invocations hold on each of its devices."""
        batch = 0 if self.batch is None else self.batch.share
        alone = self.ahead if self.batch is not None else self.in_flight
        return (batch + sum(invocation.share for invocation in alone if invocation.share_held)) / len(self.devices)

    @property
    def swappable(self) -> bool:
        """Return whether swapping it out frees bounded memory."""
        return any(device.spec.memory_bytes is not None for device in self.devices)

    @property
    def evictable_bytes(self) -> int:
        """Return its bytes on each device if others may have them, because it is idle or was only started ahead."""
        if self.state is SandboxState.WARM:
            return self.bytes if self.idle else 0
        return self.bytes if self.unused and self.state is SandboxState.STARTING else 0

    @property
    def holds_memory(self) -> bool:
        return self.state in HOLDS_DEVICE_MEMORY

    def next_use_s(self, now: float) -> float | None:
        """Return the expected seconds until its flow has a call for it, or None without any history."""
        flow = self.flow
        if flow.queued:
            return 0.0
        gap_s = flow.recent_interarrival_s
        return None if gap_s is None else abs(flow.last_arrival + gap_s - now)

    def describe(self) -> str:
        return f"sandbox {self.id} of {self.flow.key} on {place_text(self.place)}, {self.state}"
