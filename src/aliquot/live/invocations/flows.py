"""Which flow a tenant's function belongs to, its own or its group's, and what the sandboxes of each flow serve."""

from collections.abc import Sequence
from typing import NamedTuple

from aliquot.core.model import DeviceSpec
from aliquot.live.catalogue.groups import FLOW, FlowFunctions, complaint_of, flow_of
from aliquot.live.catalogue.resolving import ResolvedAction


class FlowChange(NamedTuple):
    """What the core is to be told."""

    deployed: FlowFunctions | None = None  # with what it serves now
    removed: str = ""  # a flow that has no function any more
    shrunk: FlowFunctions | None = None  # a group that one has left
    replaced: ResolvedAction | None = None  # the revision that is not served any more
    moved: bool = False  # it was in another flow, or the flow goes to other devices: what waits there must follow


class Flows:
    def __init__(self) -> None:
        self._served: dict[tuple[str, str], FlowFunctions] = {}  # by tenant and flow
        self._flow_of: dict[tuple[str, str], str] = {}  # by tenant and function

    def __getitem__(self, key: tuple[str, str]) -> FlowFunctions:
        return self._served[key]

    def flow(self, tenant: str, function: str) -> str:
        return self._flow_of.get((tenant, function), function)

    def with_new(self, resolved: ResolvedAction) -> FlowFunctions:
        """What its flow would serve, were it deployed."""
        flow = flow_of(resolved)
        if not flow.startswith(FLOW):
            return FlowFunctions.alone(resolved)
        return self._served.get((resolved.tenant, flow), FlowFunctions(resolved.tenant, flow, ())).having(resolved)

    def complaint(self, resolved: ResolvedAction, devices: Sequence[DeviceSpec]) -> str | None:
        """Why it cannot be deployed; None when it can."""
        return complaint_of(self.with_new(resolved), resolved, devices)

    def deploy(self, resolved: ResolvedAction) -> FlowChange:
        tenant, function = resolved.tenant, resolved.function
        functions = self.with_new(resolved)
        earlier = self._flow_of.get((tenant, function), functions.flow)
        left = self._leave(tenant, function) if earlier != functions.flow else FlowChange()
        before = self._served.get((tenant, functions.flow))
        old = left.replaced or (before.member(function) if before is not None else None)
        self._served[tenant, functions.flow] = functions
        self._flow_of[tenant, function] = functions.flow
        elsewhere = before is not None and bool(before.spec().share) != bool(functions.spec().share)
        moved = earlier != functions.flow or elsewhere
        return left._replace(deployed=functions, replaced=old, moved=moved)

    def remove(self, tenant: str, function: str) -> FlowChange:
        return self._leave(tenant, function) if (tenant, function) in self._flow_of else FlowChange()

    def _leave(self, tenant: str, function: str) -> FlowChange:
        flow = self._flow_of.pop((tenant, function))
        before = self._served.pop((tenant, flow))
        rest = before.without(function)
        old = before.member(function)
        if not rest.members:
            return FlowChange(removed=flow, replaced=old)
        self._served[tenant, flow] = rest
        elsewhere = bool(before.spec().share) != bool(rest.spec().share)
        return FlowChange(shrunk=rest, replaced=old, moved=elsewhere)
