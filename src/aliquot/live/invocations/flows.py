"""Flows of the live platform: each function has its own flow, or shares the flow of its group."""

from collections.abc import Sequence
from typing import NamedTuple

from aliquot.core.domain import domain_of
from aliquot.core.model import DeviceSpec
from aliquot.live.catalogue.groups import GROUP_PREFIX, FlowFunctions, flow_of, reason_not_deployable
from aliquot.live.catalogue.resolving import ResolvedAction


class FlowChange(NamedTuple):
    """A change of flows, to be reported to the scheduler."""

    deployed: FlowFunctions | None = None  # the flow with its current functions
    removed: str = ""  # a flow without functions
    shrunk: FlowFunctions | None = None  # a group that a function has left
    replaced: ResolvedAction | None = None  # the revision that is no longer served
    moved: bool = False  # the function changed its flow, or the flow its devices, so waiting calls must move


class Flows:
    """Maps functions to flows, and flows to the functions that their sandboxes serve."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str], FlowFunctions] = {}  # by tenant and flow
        self._flow_of: dict[tuple[str, str], str] = {}  # by tenant and function

    def __getitem__(self, key: tuple[str, str]) -> FlowFunctions:
        return self._served[key]

    def flow(self, tenant: str, function: str) -> str:
        """Return the name of the function's flow."""
        return self._flow_of.get((tenant, function), function)

    def revision(self, tenant: str, function: str) -> str | None:
        """Return the revision of a function that is deployed, or None."""
        functions = self._served.get((tenant, self.flow(tenant, function)))
        member = None if functions is None else functions.member(function)
        return None if member is None else member.action.revision

    def has(self, tenant: str, function: str) -> bool:
        """Return whether the function is deployed."""
        return (tenant, function) in self._flow_of

    def with_new(self, resolved: ResolvedAction) -> FlowFunctions:
        """Return the functions of its flow as they would be after deployment."""
        flow = flow_of(resolved)
        if not flow.startswith(GROUP_PREFIX):
            return FlowFunctions.single(resolved)
        return self._served.get((resolved.tenant, flow), FlowFunctions(resolved.tenant, flow, ())).with_member(resolved)

    def reason_not_deployable(
        self, resolved: ResolvedAction, devices: Sequence[DeviceSpec], max_sandbox_bytes: int
    ) -> str | None:
        """Return why the function cannot be deployed, or None."""
        return reason_not_deployable(self.with_new(resolved), resolved, devices, max_sandbox_bytes)

    def deploy(self, resolved: ResolvedAction) -> FlowChange:
        """Add a function, or replace its revision."""
        tenant, function = resolved.tenant, resolved.function
        functions = self.with_new(resolved)
        earlier = self._flow_of.get((tenant, function), functions.flow)
        left = self._leave(tenant, function) if earlier != functions.flow else FlowChange()
        before = self._served.get((tenant, functions.flow))
        old = left.replaced or (before.member(function) if before is not None else None)
        self._served[tenant, functions.flow] = functions
        self._flow_of[tenant, function] = functions.flow
        elsewhere = before is not None and domain_of(before.spec()) != domain_of(functions.spec())
        moved = earlier != functions.flow or elsewhere
        return left._replace(deployed=functions, replaced=old, moved=moved)

    def remove(self, tenant: str, function: str) -> FlowChange:
        """Remove a function from its flow."""
        return self._leave(tenant, function) if (tenant, function) in self._flow_of else FlowChange()

    def _leave(self, tenant: str, function: str) -> FlowChange:
        flow = self._flow_of.pop((tenant, function))
        before = self._served.pop((tenant, flow))
        rest = before.without(function)
        old = before.member(function)
        if not rest.members:
            return FlowChange(removed=flow, replaced=old)
        self._served[tenant, flow] = rest
        elsewhere = domain_of(before.spec()) != domain_of(rest.spec())
        return FlowChange(shrunk=rest, replaced=old, moved=elsewhere)
