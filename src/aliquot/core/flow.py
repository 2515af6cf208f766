"""A flow: the queue of one tenant's function, its idle sandboxes, and the estimates learned from its calls."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from aliquot.core.admission.estimates import Outlook
from aliquot.core.ahead import AheadState
from aliquot.core.batch_times import BatchTimes
from aliquot.core.device import Device
from aliquot.core.device_index import MAX_CANDIDATES, MAX_COMPARED, DeviceClass
from aliquot.core.idle_places import IdlePlaces, IdleSandboxes
from aliquot.core.interfaces import Expiry
from aliquot.core.lifecycle import HOST_WARM, WARM
from aliquot.core.model import FlowKey, FunctionSpec
from aliquot.core.nodes import NodeWait
from aliquot.core.provisioning.earnings import Earnings
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.view import DeviceView, SandboxView

if TYPE_CHECKING:
    from aliquot.core.domain import Domain

EWMA_KEEP, EWMA_NEW = 0.9, 0.1  # weights of the run time estimate and of a new run time
GAP_MEAN, GAP_DEVIATION = 1 / 8, 1 / 4  # gains for the gaps between arrivals, as for round trips in TCP


class Flow:
    """The queue of one tenant's function, with its sandboxes and estimates."""

    __slots__ = (
        "ahead", "arrivals", "batches", "classes", "closed", "domain", "earnings", "expected", "expiry",
        "first_arrival", "held_back", "idle_by_device", "in_flight", "index", "interarrival_deviation_s", "kept", "key",
        "last_arrival", "last_serviced", "misfit", "node_wait", "outlook", "places", "promised", "queue", "queued",
        "recent_interarrival_s", "riders", "run_estimate_s", "run_estimates_s", "sandboxes", "sandboxes_on", "spec",
        "start_estimate_s", "tenant_weight", "timer_at", "weight",
    )  # fmt: skip

    def __init__(self, index: int, key: FlowKey, spec: FunctionSpec, domain: "Domain") -> None:
        self.index = index
        self.key = key
        self.spec = spec
        self.domain = domain
        self.tenant_weight: float = 1  # set by the operator
        self.weight = spec.weight  # the tenant's weight times the function's
        self.queue: OrderedDict[str, Invocation] = OrderedDict()
        self.queued = 0  # length of the queue, counted because it is read more often than anything else
        self.held_back: OrderedDict[str, Invocation] = OrderedDict()  # see `waiting.py`
        self.promised: OrderedDict[str, Invocation] = OrderedDict()  # calls with an objective that are not dispatched
        self.outlook: Outlook | None = None  # bounds of its times, from its first call with an objective on
        self.expected: tuple[float, ...] = ()  # when calls are known to come (`provisioning/expected.py`)
        self.earnings = Earnings()  # of what was held for it
        self.closed = False  # its function is removed, but invocations in flight may finish
        self.in_flight = 0
        self.riders = 0  # invocations in flight that have no slot, because they ride along in a batch
        self.arrivals = 0
        self.first_arrival: float = 0
        self.last_arrival: float = 0
        self.last_serviced: float = 0
        self.recent_interarrival_s: float | None = None
        self.interarrival_deviation_s: float = 0
        self.run_estimate_s: float | None = None
        self.run_estimates_s: dict[str, float] = {}  # by kind of device
        self.start_estimate_s: float | None = None  # measured cold starts
        self.sandboxes: dict[int, Sandbox] = {}
        self.sandboxes_on: dict[int, int] = {}  # their number by index of device, if it may have one on each
        self.idle_by_device: dict[int, IdleSandboxes] = {}  # of every device that has had an idle one
        self.places: IdlePlaces | None = None  # kept up to date if its domain has many devices
        self.kept = 0  # idle sandboxes that are kept for sessions
        self.batches = _batch_times(spec)  # None if its calls run one by one
        self.ahead = _ahead_state(spec)
        self.classes: Sequence[DeviceClass] = ()  # classes of devices that can run it
        self.misfit: str | None = None  # why no device can ever run it
        self.node_wait: NodeWait | None = None  # how long its calls wait for a node on which it fits
        self.expiry: Expiry | None = None
        self.timer_at: float | None = None

    @property
    def head(self) -> Invocation:
        return next(iter(self.queue.values()))

    @property
    def idle(self) -> bool:
        """Return whether nothing waits and nothing is in flight."""
        return not self.queued and not self.in_flight and not self.promised

    def stop_waiting(self) -> None:
        """Stop waiting for a node, because the flow fits again or is gone."""
        if self.node_wait is not None:
            self.node_wait.expiry = None
            self.node_wait = None

    # --- estimates --------------------------------------------------------------------------------------

    @property
    def mean_interarrival_s(self) -> float | None:
        if self.arrivals < 2:  # noqa: PLR2004 - a gap needs two arrivals
            return None
        return (self.last_arrival - self.first_arrival) / (self.arrivals - 1)

    def record_arrival(self, now: float) -> None:
        """Update the statistics of the gaps between arrivals."""
        if not self.arrivals:
            self.first_arrival = now
        else:
            self._record_gap(now - self.last_arrival)
        self.arrivals += 1
        self.last_arrival = now

    def _record_gap(self, gap_s: float) -> None:
        known = self.recent_interarrival_s
        if known is None:
            self.recent_interarrival_s, self.interarrival_deviation_s = gap_s, gap_s / 2
            return
        self.interarrival_deviation_s += GAP_DEVIATION * (abs(gap_s - known) - self.interarrival_deviation_s)
        self.recent_interarrival_s = known + GAP_MEAN * (gap_s - known)

    def record_run(self, kind: str, run_s: float) -> None:
        """Update the run time estimates with a completed run on a device of this kind."""
        known = self.run_estimate_s
        self.run_estimate_s = run_s if known is None else EWMA_KEEP * known + EWMA_NEW * run_s
        known = self.run_estimates_s.get(kind)
        self.run_estimates_s[kind] = run_s if known is None else EWMA_KEEP * known + EWMA_NEW * run_s

    def record_start(self, start_s: float) -> None:
        """Update the estimate of a cold start with a completed one."""
        known = self.start_estimate_s
        self.start_estimate_s = start_s if known is None else EWMA_KEEP * known + EWMA_NEW * start_s

    def forget_runs(self) -> None:
        """Forget the run and start times of another version of the function."""
        self.start_estimate_s = None
        self.ahead = _ahead_state(self.spec)
        self.batches = _batch_times(self.spec)
        self.outlook = None
        self.run_estimate_s = None
        self.run_estimates_s = {}

    def add_priors(self, classes: Iterable[DeviceClass]) -> None:
        """Take declared run times as estimates where none exist: one for each kind, and the first class's overall."""
        for own in classes:
            run_s = self.spec.times_on(own.spec).run_s
            if run_s is None or not self.spec.runs_on(own.spec):
                continue
            self.run_estimates_s.setdefault(own.spec.kind, run_s)
            if self.run_estimate_s is None:
                self.run_estimate_s = run_s

    # --- idle sandboxes ---------------------------------------------------------------------------------

    def idle_at(self, device: Device) -> IdleSandboxes:
        """Return the record of the flow's idle sandboxes on the device, which the pool updates."""
        idle = self.idle_by_device.get(device.index)
        if idle is None:
            idle = self.idle_by_device[device.index] = IdleSandboxes(device)
            device.flows[self.index] = self
        return idle

    def set_many(self, *, many: bool) -> None:
        """Begin or stop to keep the order of its idle places, because its domain has many devices or few."""
        self.places = IdlePlaces() if many else None
        if self.places is not None:
            for idle in self.idle_by_device.values():
                self.places.update(idle)

    def idle_on(self, device: DeviceView) -> Sandbox | None:
        """Return the best idle sandbox on the device: resident before not resident, then by `nearness` and last use."""
        idle = self.idle_by_device.get(device.index)
        if idle is None:
            return None
        candidates = idle.resident or idle.not_resident
        if self.kept and candidates:
            return self._nearest(candidates)
        return next(reversed(candidates.values())) if candidates else None

    def place_ahead(self) -> Device | None:
        """Return the device on which a busy sandbox takes the flow's first invocation ahead, or None."""
        if self.ahead is None:
            return None
        busy = self.ahead.place_for(self.head)
        return None if busy is None else busy.device

    def idle_places(self) -> list[tuple[Device, Sandbox]]:
        """Return the devices on which the flow has an idle sandbox, with the sandbox that `idle_on` would return.

        Among many devices these are the most recently used ones.
        """
        if self.kept or self.places is not None:
            return self._places_by_nearness(self._listed(MAX_COMPARED))
        places = []
        for idle in self.idle_by_device.values():
            candidates = idle.resident or idle.not_resident
            if candidates and idle.device.slots:  # otherwise its node gets no work
                places.append((idle.device, next(reversed(candidates.values()))))
        return places

    def places_with_slots(self, count: int) -> list[tuple[Device, Sandbox]]:
        """Return so many of the most recently used idle places whose device has a free slot, if there are as many."""
        found: list[IdleSandboxes] = []
        for idle in self._listed(MAX_CANDIDATES):
            if idle.device.running < idle.device.slots:
                found.append(idle)
                if len(found) == count:
                    break
        return self._places_by_nearness(found)

    def nearness(self, sandbox: SandboxView) -> int:
        """Rank an idle sandbox: 0 if it is kept for the session of the flow's head, 1 if for none, 2 if for another.

        The rank only breaks ties.
        """
        if not self.kept:
            return 0
        session = self.head.session if self.queue else None
        kept_for = sandbox.session
        return 0 if kept_for is session else 1 if kept_for is None else 2

    def _nearest(self, candidates: dict[int, Sandbox]) -> Sandbox:
        """Return the most recently used of the nearest, or the least recently used when all are kept for others.

        The list is short: a flow has no more idle sandboxes on a device than have run there at once.
        """
        session = self.head.session if self.queue else None
        free = last = None
        for sandbox in reversed(candidates.values()):
            if sandbox.session is session:
                return sandbox
            if free is None and sandbox.session is None:
                free = sandbox
            last = sandbox
        nearest = free or last
        assert nearest is not None  # noqa: S101 - callers pass at least one
        return nearest

    def _places_by_nearness(self, listed: Iterable[IdleSandboxes]) -> list[tuple[Device, Sandbox]]:
        places = []
        for idle in listed:
            candidates = idle.resident or idle.not_resident
            if candidates and idle.device.slots:  # otherwise its node gets no work
                sandbox = self._nearest(candidates) if self.kept else next(reversed(candidates.values()))
                places.append((idle.device, sandbox))
        return sorted(places, key=lambda place: self.nearness(place[1])) if self.kept else places

    def _listed(self, count: int) -> Iterable[IdleSandboxes]:
        """Return its idle sandboxes by device, or among many devices those kept for the head's session and a few more.

        A session keeps sandboxes of several flows, but only a few of them.
        """
        if self.places is None:
            return self.idle_by_device.values()
        session = self.head.session if self.kept and self.queue else None
        if session is None:
            return islice(self.places.recent(), count)
        own = {s.device.index: self.idle_by_device[s.device.index] for s in session.kept.values() if s.flow is self}
        others = (idle for idle in islice(self.places.recent(), count) if idle.device.index not in own)
        return [*islice(own.values(), count), *others]

    def resident_on(self, device: DeviceView) -> bool:
        """Return whether an idle sandbox of the flow is in the memory of the device."""
        idle = self.idle_by_device.get(device.index)
        return bool(idle and idle.resident)

    def is_resident(self) -> bool:
        """Return whether one of its `idle_places` is warm."""
        if self.places is not None:
            return any(sandbox.state is WARM for _, sandbox in self.idle_places())
        for idle in self.idle_by_device.values():  # a generator would be slower  # noqa: SIM110
            if idle.resident and idle.device.slots:
                return True
        return False

    def has_swapped_out(self) -> bool:
        """Return whether `swapped_out` has any."""
        if self.places is not None:
            return bool(self.swapped_out())
        for idle in self.idle_by_device.values():
            for sandbox in idle.not_resident.values():
                if sandbox.state is HOST_WARM:
                    return True
        return False

    def swapped_out(self) -> list[Sandbox]:
        """Return the idle sandboxes whose bytes are on the host, the most recently used on each device first.

        Among many devices these are the most recently used ones.
        """
        devices: Iterable[IdleSandboxes] = reversed(self.idle_by_device.values())
        if self.places is not None:
            devices = islice(self.places.swapped_out(), MAX_CANDIDATES)
        return [
            sandbox
            for idle in devices
            if idle.not_resident
            for sandbox in reversed(idle.not_resident.values())
            if sandbox.state is HOST_WARM
        ]

    def idle_sandboxes(self) -> list[Sandbox]:
        return [
            sandbox
            for idle in (self.idle_by_device.values() if self.places is None else self.places.recent())
            for candidates in (idle.resident, idle.not_resident)
            for sandbox in candidates.values()
        ]


def _ahead_state(spec: FunctionSpec) -> AheadState | None:
    return AheadState() if spec.runs_ahead and spec.batch == 1 and not spec.run_bytes else None


def _batch_times(spec: FunctionSpec) -> BatchTimes | None:
    return BatchTimes(spec.batch) if spec.batch > 1 else None
