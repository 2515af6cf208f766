"""The devices that calls with objectives need, by their recent rates and the batches that are planned for them."""

from collections import deque
from math import ceil
from typing import TYPE_CHECKING

from aliquot.core.admission.demand import HEADROOM_LOAD, KindDemand
from aliquot.core.admission.estimates import outlook_of
from aliquot.core.model import CPU

if TYPE_CHECKING:
    from aliquot.core.admission.plan import Plan
    from aliquot.core.device_index import DeviceClass
    from aliquot.core.provisioning.capacity import CapacityWanted
    from aliquot.core.registry import Registry

LOOK_EVERY_S = 1.0
MIN_KNOWN_S = 2.0  # since the first call of a function
LOOKS = 10  # the highest of so many counts, so that a pause of a few seconds gives nothing back


class DeviceNeeds:
    """Counts the devices of each kind that keep the load of their lanes low enough for tight deadlines."""

    def __init__(self, plan: "Plan", registry: "Registry", capacity: "CapacityWanted") -> None:
        self._plan = plan
        self._registry = registry
        self._capacity = capacity
        self._looked_at: float | None = None
        self._counts: dict[str, deque[int]] = {}

    def look(self, now: float) -> None:
        """Tell the needs if a second has passed."""
        if not self._plan.kinds or (self._looked_at is not None and now < self._looked_at + LOOK_EVERY_S):
            return
        self._looked_at = now
        for name, demand in self._plan.kinds.items():
            own = next((each for each in self._registry.index.classes.values() if each.spec.kind == name), None)
            if own is None or name == CPU:
                continue
            load = _load(demand, own, now)
            counts = self._counts.setdefault(name, deque(maxlen=LOOKS))
            counts.append(ceil(load / (HEADROOM_LOAD * own.spec.lane_count)))
            reason = f"calls with deadlines keep {load:.2g} lanes busy, of {HEADROOM_LOAD:g} of the lanes at most"
            self._capacity.planned(name, max(counts), LOOK_EVERY_S, reason)


def _load(demand: KindDemand, own: "DeviceClass", now: float) -> float:
    """Return the lanes that the calls would keep busy if none was refused.

    The first calls of a function say little about its rate. They do not count for a while.
    """
    load = 0.0
    for each in demand.flows.values():
        if each.known_for(now) < MIN_KNOWN_S:
            continue
        bound = outlook_of(each.flow, now).run_s(each.flow.spec, own.spec, each.size, now)
        load += each.rate(now) * each.width * (bound or 0.0) / each.size
    return load
