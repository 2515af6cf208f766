"""Who is at work where, until when by estimate, and how much work side by side slows down: measured as it happens.

The stretch of a kind of device at k invocations at once is the mean of their run times over those of the same function
alone. Throughput at k is k over that stretch; more at once than the throughput gains by is not worth having.
"""

from aliquot.core.view import DeviceView, FlowView, InvocationView

LEARN = 0.05
ENOUGH = 20  # runs before a stretch is believed
WORTH = 1.02  # by how much one more at once must raise the throughput
GUESS = 0.3  # stretch per further invocation, until it is measured


class Stint:
    """One invocation at work."""

    __slots__ = ("at_once", "device", "ends")

    def __init__(self, device: int, ends: float, at_once: int) -> None:
        self.device = device
        self.ends = ends
        self.at_once = at_once


class Occupancy:
    def __init__(self) -> None:
        self._stints: dict[int, dict[str, Stint]] = {}  # by device
        self._own: dict[int, dict[str, Stint]] = {}  # by flow
        self._alone_s: dict[tuple[int, str], float] = {}
        self._stretch: dict[str, dict[int, tuple[float, int]]] = {}  # kind: at once: mean and count

    def began(self, flow: FlowView, invocation: InvocationView, device: DeviceView, ends: float) -> None:
        stint = Stint(device.index, ends, device.running)
        self._stints.setdefault(device.index, {})[invocation.id] = stint
        self._own.setdefault(flow.index, {})[invocation.id] = stint

    def ended(self, flow: FlowView, invocation: InvocationView, device: DeviceView) -> None:
        stint = self._stints[device.index].pop(invocation.id, None)
        own = self._own.get(flow.index, {})
        own.pop(invocation.id, None)
        if not own:
            self._own.pop(flow.index, None)
        if stint is not None and invocation.run_s:
            self._learn(flow, device, (stint.at_once + device.running + 1) / 2, invocation.run_s)

    def forget(self, flow: FlowView) -> list[str]:
        """The flow is gone; returns which of its invocations were at work."""
        own = self._own.pop(flow.index, {})
        for name, stint in own.items():
            self._stints[stint.device].pop(name, None)
        for kind in self._stretch:
            self._alone_s.pop((flow.index, kind), None)
        return list(own)

    def free_in_s(self, device: DeviceView, now: float) -> float:
        """When, by estimate, the first invocation on the device will be done."""
        ends = [stint.ends for stint in self._stints.get(device.index, {}).values()]
        return max(0.0, min(ends) - now) if ends else 0.0

    def own_free_in_s(self, flow: FlowView, now: float) -> float | None:
        """When, by estimate, the first of the flow's own will be done; None when none is at work."""
        own = self._own.get(flow.index)
        return max(0.0, min(stint.ends for stint in own.values()) - now) if own else None

    def stretch(self, device: DeviceView, at_once: int) -> float:
        mean, count = self._stretch.get(device.spec.kind, {}).get(at_once, (0.0, 0))
        return mean if count >= ENOUGH else 1 + GUESS * (at_once - 1)

    def worthwhile(self, device: DeviceView) -> int:
        """How many at once the device should run: up to D, as long as each more raises the throughput."""
        limit = device.slots
        known = self._stretch.get(device.spec.kind, {})
        best = 1.0
        for at_once in range(2, limit + 1):
            mean, count = known.get(at_once, (0.0, 0))
            if count < ENOUGH:  # not known yet: try it
                return at_once
            if at_once / mean < WORTH * best:
                return at_once - 1
            best = at_once / mean
        return limit

    def _learn(self, flow: FlowView, device: DeviceView, at_once: float, run_s: float) -> None:
        kind = device.spec.kind
        key = (flow.index, kind)
        alone_s = self._alone_s.get(key)
        if alone_s is None:
            alone_s = self._alone_s[key] = flow.spec.times_on(device.spec).run_s or run_s
        if at_once == 1:
            self._alone_s[key] = alone_s + LEARN * (run_s - alone_s)
        elif alone_s > 0:
            stretches = self._stretch.setdefault(kind, {})
            mean, count = stretches.get(round(at_once), (0.0, 0))
            learn = max(LEARN, 1 / (count + 1))
            stretches[round(at_once)] = (mean + learn * (run_s / alone_s - mean), count + 1)
