"""Estimate where a call would end first, and whether it is better to wait for a sandbox that the flow already has."""

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from aliquot.core.lifecycle import HOLDS_DEVICE_MEMORY, WARM
from aliquot.core.view import DeviceView, FlowView, View
from aliquot.policies.queueing.parts.occupancy import Occupancy
from aliquot.policies.queueing.parts.placement import Placement, packed


class ExpectedEnd(Struct, frozen=True, gc=False):
    """A placement with its cost: the seconds until the call's end, and those that others lose by it."""

    cost_s: float
    start_s: float
    displaced_s: float  # to load again what is swapped out for it
    place: Placement


MIN_WAIT_S = 0.001  # before a decision to wait is reconsidered
MAX_EXPECTED = 16  # flows with known calls that one decision looks at
MANY_WAITS = 4  # among many devices a call may wait beside an idle one for so many times the start that it saves


class WaitDecision(Struct, frozen=True, gc=False):
    """A decision to wait until something is freed on one of these devices, or on any if None, or until that time."""

    devices: Sequence[DeviceView] | None
    until: float
    fits_nowhere: bool = False


class EndEstimator:
    """Estimates start and run times. If `adaptive`, no device runs more calls at once than raise its throughput."""

    def __init__(self, occupancy: Occupancy, unknown_s: float, *, adaptive: bool) -> None:
        self._occupancy = occupancy
        self._unknown_s = unknown_s
        self._adaptive = adaptive

    # --- times ------------------------------------------------------------------------------------------

    def typical_run_s(self, flow: FlowView) -> float:
        known = flow.run_estimate_s
        return self._unknown_s if known is None else known

    def run_s(self, flow: FlowView, device: DeviceView) -> float:
        known = flow.run_estimates_s.get(device.spec.kind, flow.run_estimate_s)
        return self._unknown_s if known is None else known

    def best_start_s(self, flow: FlowView) -> float:
        """Return the start time where the flow starts fastest, even if that device is full."""
        if flow.is_resident():
            return 0.0
        best_s: float | None = None
        for device, _ in flow.idle_places():
            load_s = reload_s(flow, device)
            best_s = load_s if best_s is None else min(best_s, load_s)
        if best_s is not None:
            return best_s
        return max(flow.spec.times.cold_s, flow.spec.times.load_s or 0)

    # --- placement --------------------------------------------------------------------------------------

    def allowed(self, device: DeviceView) -> bool:
        """Return whether one more call on the device is worthwhile."""
        if self._adaptive and self._occupancy.limited:
            return device.running < self._occupancy.max_worthwhile(device)
        return device.running < device.slots

    def best(self, view: View, flow: FlowView) -> ExpectedEnd | None:
        """Return the placement with the earliest expected end, an idle sandbox before a new one.

        A busy sandbox that takes the call ahead is better than an idle one, because it need not wake up.
        """
        ahead = flow.place_ahead()
        if ahead is not None and self.allowed(ahead):
            return ExpectedEnd(self.run_s(flow, ahead), 0.0, 0.0, (ahead, None))
        return self.best_idle(view, flow) or self._best_new(view, flow)

    def leave_to_expected(self, view: View, flow: FlowView, best: ExpectedEnd) -> ExpectedEnd:
        """Return another placement if a flow that is expected meanwhile would lose more by this one than the flow.

        The flow must have a choice that ends in time for its head.
        """
        lost_s = self._lost_by_expected(view, flow, best)
        if lost_s <= 0:
            return best
        other = self._best_elsewhere(view, flow, best.place[0])
        if other is None or other.cost_s >= best.cost_s + lost_s:
            return best
        due = flow.head.deadline if flow.queued else None
        return best if due is not None and view.now + other.cost_s > due else other

    def _lost_by_expected(self, view: View, flow: FlowView, best: ExpectedEnd) -> float:
        """Return the seconds by which calls that are known to come end later if the flow takes this placement."""
        device, ends = best.place[0], view.now + best.cost_s
        if device.slots - device.running > 1:
            return 0.0
        lost_s = 0.0
        for other in islice(view.expected.values(), MAX_EXPECTED):
            at = next((at for at in other.expected if at >= view.now), None)
            if other is flow or at is None or at >= ends or device.device_class not in other.classes:
                continue
            here_s, wait_s = self.run_s(other, device), ends - at
            elsewhere = [
                self.run_s(other, each) - here_s
                for each in view.candidates(other)
                if each is not device and each.running < each.slots and each.device_class in other.classes
            ]
            lost_s += max(0.0, min([wait_s, *elsewhere]))
        return lost_s

    def _best_elsewhere(self, view: View, flow: FlowView, avoided: DeviceView) -> ExpectedEnd | None:
        """Return the placement with the earliest expected end on any other device."""
        best: ExpectedEnd | None = None
        for device in view.candidates(flow):
            if device is avoided or not self.allowed(device):
                continue
            sandbox = flow.idle_on(device)
            if sandbox is not None and not view.can_use(sandbox):
                continue
            if sandbox is None and not view.can_start(flow, device):
                continue
            warm = sandbox is not None and sandbox.state in HOLDS_DEVICE_MEMORY
            displaced_s = 0.0 if warm else swapped_out_s(flow, device)
            start_s = 0.0 if warm else cold_s(flow, device) if sandbox is None else reload_s(flow, device)
            cost_s = start_s + displaced_s + self._stretched_run_s(flow, device) + view.data_s(flow, device)
            if best is None or cost_s < best.cost_s:
                best = ExpectedEnd(cost_s, start_s, displaced_s, (device, sandbox))
        return best

    def best_idle(self, view: View, flow: FlowView) -> ExpectedEnd | None:
        """Return the placement in an idle sandbox with the earliest expected end.

        Among equal ones, a sandbox kept for the head's session comes first. Then the packing chooses for a declared
        share, and otherwise the first device is taken.
        """
        best: tuple[float, int, float, float] | None = None  # cost and nearness, start and displacement
        as_good: list[Placement] = []
        datasets, limited = flow.spec.datasets, self._adaptive and self._occupancy.limited
        for place in view.idle_places(flow) if view.many else flow.idle_places():
            device, sandbox = place
            if device.running < device.slots and (not limited or self.allowed(device)) and view.can_use(sandbox):
                start_s = displaced_s = 0.0
                if sandbox.state not in HOLDS_DEVICE_MEMORY:
                    start_s, displaced_s = reload_s(flow, device), swapped_out_s(flow, device)
                cost_s = start_s + displaced_s + self._stretched_run_s(flow, device)
                if datasets:
                    cost_s += view.data_s(flow, device)
                nearness = flow.nearness(sandbox)
                if best is None or cost_s < best[0] or (cost_s == best[0] and nearness < best[1]):
                    best = cost_s, nearness, start_s, displaced_s
                    as_good = [place]
                elif cost_s == best[0] and nearness == best[1]:
                    as_good.append(place)
        return None if best is None else ExpectedEnd(best[0], best[2], best[3], _first_of(view, flow, as_good))

    def _best_new(self, view: View, flow: FlowView) -> ExpectedEnd | None:
        best: tuple[float, float, float] | None = None  # cost, start and displacement
        as_good: list[Placement] = []
        for device in view.candidates(flow):
            if self.allowed(device) and view.can_start(flow, device) and flow.idle_on(device) is None:
                start_s, displaced_s = cold_s(flow, device), swapped_out_s(flow, device)
                if device.pool_full:
                    displaced_s += start_s  # the start of the sandbox that is stopped, if it is like this one
                cost_s = start_s + displaced_s + self._stretched_run_s(flow, device) + view.data_s(flow, device)
                if best is None or cost_s < best[0]:
                    best = cost_s, start_s, displaced_s
                    as_good = [(device, None)]
                elif cost_s == best[0]:
                    as_good.append((device, None))
        return None if best is None else ExpectedEnd(*best, _first_of(view, flow, as_good))

    def _stretched_run_s(self, flow: FlowView, device: DeviceView) -> float:
        known = flow.run_estimates_s.get(device.spec.kind, flow.run_estimate_s)
        run_s = self._unknown_s if known is None else known
        guaranteed = flow.spec.share and device.sliced  # whatever else runs there
        if not device.running or guaranteed:
            return run_s
        return run_s * self._occupancy.stretch(device, device.running + 1)

    # --- waiting ----------------------------------------------------------------------------------------

    def better_to_wait(self, view: View, flow: FlowView, best: ExpectedEnd, waited_s: float = 0) -> WaitDecision | None:
        """Return a decision to wait if a sandbox that the flow has would take the call before a new one is ready.

        Running sandboxes of the flow count together with its backlog. With one sandbox and a hundred queued calls, the
        next free sandbox is no reason not to start another. While slots are idle, a start costs the others nothing, so
        waiting must be quicker by up to half. If runs take longer than expected, a call that has `waited_s` beside an
        idle device waits no longer in total than the start takes, with the start of what it displaces. Among many
        devices one is nearly always idle, and it may wait a few times as long, because starts take compute from others.
        """
        wait_s, idle = self._wait_s(view, flow)
        if wait_s is None:
            return None
        saved_s = best.start_s + best.displaced_s
        left_s = (MANY_WAITS * saved_s if view.many else saved_s) - waited_s
        max_wait_s = saved_s * (1 + view.busy_fraction()) / 2
        if wait_s >= max_wait_s or left_s < MIN_WAIT_S:
            return None
        # However idle the devices become, waiting must be quicker than half of the shortest start. If no run ends
        # where the flow waits, the expected wait grows at most as fast as time passes.
        shortest_s = _min_cold_s(flow) if best.place[1] is None else best.start_s
        sure_s = shortest_s / 2 - wait_s
        if sure_s > 0:
            return WaitDecision(idle, view.now + min(max(sure_s, MIN_WAIT_S), left_s))
        # Among many devices one that becomes idle elsewhere changes the busy fraction little, so only time decides.
        return WaitDecision(idle if view.many else None, view.now + min(max(max_wait_s - wait_s, MIN_WAIT_S), left_s))

    def _wait_s(self, view: View, flow: FlowView) -> tuple[float | None, list[DeviceView]]:
        """Return the wait for a sandbox of the flow, or None, and the full devices on which it has idle ones."""
        shortest_s = self._occupancy.own_free_in_s(flow, view.now)
        if shortest_s is not None:
            shortest_s += self.typical_run_s(flow) * (flow.queued - 1) / flow.in_flight
        idle: list[DeviceView] = []
        for device, sandbox in flow.idle_places():
            idle.append(device)
            if self.allowed(device) and view.can_use(sandbox):
                continue  # it is the start that waiting is compared with
            load_s = 0.0 if sandbox.state is WARM else reload_s(flow, device)
            wait_s = self._occupancy.free_in_s(device, view.now) + load_s
            if shortest_s is None or wait_s < shortest_s:
                shortest_s = wait_s
        return shortest_s, idle


def _first_of(view: View, flow: FlowView, as_good: Sequence[Placement]) -> Placement:
    """Return one of several placements that cost the same."""
    if len(as_good) == 1:
        return as_good[0]
    if flow.spec.share:
        return packed(view, flow, as_good) or as_good[0]
    return min(as_good, key=_device_index)


def _device_index(place: Placement) -> int:
    return place[0].index


def reload_s(flow: FlowView, device: DeviceView) -> float:
    return flow.spec.times_on(device.spec).load_s or 0


def swapped_out_s(flow: FlowView, device: DeviceView) -> float:
    """Return the time to load again the bytes that are swapped out for a sandbox of the flow, at its own rate."""
    memory_bytes = flow.spec.memory_bytes
    missing = memory_bytes - device.free_bytes
    return reload_s(flow, device) * missing / memory_bytes if missing > 0 else 0.0


def cold_s(flow: FlowView, device: DeviceView) -> float:
    """Return the duration of a cold start, in which the process starts and its bytes are loaded at the same time."""
    times = flow.spec.times_on(device.spec)
    return max(times.cold_s, times.load_s or 0)


def _min_cold_s(flow: FlowView) -> float:
    """Return the shortest cold start on any kind of device, without the transfer."""
    spec = flow.spec
    if not spec.times_by_kind:
        return spec.times.cold_s
    return min(spec.times.cold_s, *(times.cold_s for times in spec.times_by_kind.values()))
