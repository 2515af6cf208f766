"""Report deployments to the scheduler: new and removed flows, and waiting calls whose function has changed its flow."""

from collections.abc import Callable, Mapping, Sequence

from aliquot.core.events import Event, FunctionDeployed, FunctionRemoved
from aliquot.live.catalogue.groups import FlowFunctions
from aliquot.live.catalogue.images import RuntimeImage
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call, NestedCall
from aliquot.live.invocations.environment_waits import EnvironmentWaits
from aliquot.live.invocations.flows import FlowChange, Flows
from aliquot.live.invocations.launches import requirements_of
from aliquot.live.store.records import Action

REMOVED = "its function was removed"
MOVED = "its function left the group"


class Deployments:
    """Keeps the flows up to date, and reports every change to the scheduler."""

    def __init__(
        self,
        flows: Flows,
        calls: Mapping[str, Call],
        environments: EnvironmentWaits,
        images: tuple[RuntimeImage, ...],
        *,
        post: Callable[[Event], None],
        cancel: Callable[[Call, str], None],
        forget: Callable[[Action], None],
    ) -> None:
        """`cancel` ends a waiting call, and `forget` drops the cached record template of an action revision."""
        self._flows = flows
        self._calls = calls
        self._environments = environments
        self._images = images
        self._post = post
        self._cancel = cancel
        self._forget = forget

    def deploy(self, resolved: ResolvedAction) -> FlowFunctions:
        """Deploy a function, or a new revision of it. Returns the functions of its flow."""
        change = self._flows.deploy(resolved)
        self._report(resolved.tenant, resolved.function, change)
        if change.shrunk is not None:  # it left a group that still exists
            for call in self._waiting(resolved.tenant, (resolved.function,)):
                self._cancel(call, MOVED)
        self._reconsider_waits(resolved.tenant)
        return self._flows[resolved.tenant, self._flows.flow(resolved.tenant, resolved.function)]

    def remove(self, tenant: str, function: str) -> None:
        """Remove a function, and cancel its waiting calls."""
        change = self._flows.remove(tenant, function)
        self._report(tenant, function, change)
        if change.shrunk is not None:  # the group still exists, but these calls cannot run
            for call in self._waiting(tenant, (function,)):
                self._cancel(call, REMOVED)
        self._reconsider_waits(tenant)

    def _report(self, tenant: str, function: str, change: FlowChange) -> None:
        if change.replaced is not None:
            self._forget(change.replaced.action)
        if change.moved:  # waiting calls fail in the old flow and arrive again in the new one
            others = [
                one.function for functions in (change.shrunk, change.deployed) if functions for one in functions.members
            ]
            for call in self._waiting(tenant, (function, *others)):
                call.run.may_retry = True
        if change.removed:
            self._environments.set_requirements(tenant, change.removed, ())
            self._post(FunctionRemoved(tenant, change.removed))
        for functions in (change.shrunk, change.deployed):
            if functions is not None:
                self._environments.set_requirements(tenant, functions.flow, requirements_of(functions, self._images))
                self._post(FunctionDeployed(tenant, functions.spec()))

    def _waiting(self, tenant: str, functions: Sequence[str]) -> list[Call]:
        """Return the calls of these functions that wait in the scheduler."""
        calls = [call for call in self._calls.values() if call.namespace.name == tenant and not call.run.begun_s]
        calls = [call for call in calls if call.function in functions and call.id not in self._environments]
        return [call for call in calls if not isinstance(call, NestedCall)]

    def _reconsider_waits(self, tenant: str) -> None:
        self._environments.reconsider(tenant, lambda name: self._flows.has(tenant, name), REMOVED)
