"""Which flow a tenant's function belongs to, its own or its group's, and what the sandboxes of each flow serve."""

from collections.abc import Sequence
from typing import NamedTuple

from aliquot.core.model import DeviceSpec
from aliquot.live.catalogue.groups import FLOW, Served, complaint_of, flow_of
from aliquot.live.catalogue.resolving import Reached


class Change(NamedTuple):
    """What the core is to be told."""

    deployed: Served | None = None  # with what it serves now
    removed: str = ""  # a flow that has no function any more
    shrunk: Served | None = None  # a group that one has left
    replaced: Reached | None = None  # the revision that is not served any more
    moved: bool = False  # it was in another flow, or the flow goes to other devices: what waits there must follow


class Flows:
    def __init__(self) -> None:
        self._served: dict[tuple[str, str], Served] = {}  # by tenant and flow
        self._flow_of: dict[tuple[str, str], str] = {}  # by tenant and function

    def __getitem__(self, key: tuple[str, str]) -> Served:
        return self._served[key]

    def flow(self, tenant: str, function: str) -> str:
        return self._flow_of.get((tenant, function), function)

    def with_new(self, reached: Reached) -> Served:
        """What its flow would serve, were it deployed."""
        flow = flow_of(reached)
        if not flow.startswith(FLOW):
            return Served.alone(reached)
        return self._served.get((reached.tenant, flow), Served(reached.tenant, flow, ())).having(reached)

    def complaint(self, reached: Reached, devices: Sequence[DeviceSpec]) -> str | None:
        """Why it cannot be deployed; None when it can."""
        return complaint_of(self.with_new(reached), reached, devices)

    def deploy(self, reached: Reached) -> Change:
        tenant, function = reached.tenant, reached.function
        served = self.with_new(reached)
        earlier = self._flow_of.get((tenant, function), served.flow)
        left = self._leave(tenant, function) if earlier != served.flow else Change()
        before = self._served.get((tenant, served.flow))
        old = left.replaced or (before.member(function) if before is not None else None)
        self._served[tenant, served.flow] = served
        self._flow_of[tenant, function] = served.flow
        elsewhere = before is not None and bool(before.spec().share) != bool(served.spec().share)
        moved = earlier != served.flow or elsewhere
        return left._replace(deployed=served, replaced=old, moved=moved)

    def remove(self, tenant: str, function: str) -> Change:
        return self._leave(tenant, function) if (tenant, function) in self._flow_of else Change()

    def _leave(self, tenant: str, function: str) -> Change:
        flow = self._flow_of.pop((tenant, function))
        before = self._served.pop((tenant, flow))
        rest = before.without(function)
        old = before.member(function)
        if not rest.members:
            return Change(removed=flow, replaced=old)
        self._served[tenant, flow] = rest
        elsewhere = bool(before.spec().share) != bool(rest.spec().share)
        return Change(shrunk=rest, replaced=old, moved=elsewhere)
