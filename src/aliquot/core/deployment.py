"""Functions that are deployed, replaced and removed."""

from aliquot.core.admission.admitter import Admitter
from aliquot.core.calls import Calls
from aliquot.core.domain import Domain
from aliquot.core.errors import EventError
from aliquot.core.events import FunctionDeployed, FunctionRemoved
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Batching
from aliquot.core.model import FlowKey
from aliquot.core.pool import Pool
from aliquot.core.prefetching.by_node import NodePrefetchers
from aliquot.core.provisioning.provisioner import Provisioner
from aliquot.core.registry import Registry
from aliquot.core.validate import function_problems
from aliquot.core.waiting import admit, hold_back


class Deployment:
    """Opens, changes and closes the flows of functions."""

    def __init__(
        self,
        registry: Registry,
        pool: Pool,
        calls: Calls,
        provisioner: Provisioner,
        prefetcher: NodePrefetchers,
        batching: Batching,
        admitter: Admitter,
        domains: list[Domain],
    ) -> None:
        self._registry = registry
        self._pool = pool
        self._calls = calls
        self._provisioner = provisioner
        self._prefetcher = prefetcher
        self._batching = batching
        self._admitter = admitter
        self._domains = domains  # those of the registry, as a list for the loops of every step

    @property
    def now(self) -> float:
        return self._admitter.plan.now

    def deployed(self, event: FunctionDeployed) -> None:
        """Open a flow for a new function, or give a flow the new version of its function."""
        for problem in function_problems(event.function):
            raise EventError(f"function {event.function.name}: {problem}")
        key = FlowKey(event.tenant, event.function.name)
        domain = self._registry.domain(event.function, now=self.now)
        self._domains[:] = list(self._registry.domains.values())
        flow = self._registry.flows.get(key)
        if flow is not None and flow.domain is not domain:
            self._close(flow, "its function moved to other devices")
            flow = None
        before = () if flow is None else flow.spec.datasets
        if before or event.function.datasets:
            self._prefetcher.function_changed(event.tenant, before, event.function.datasets)
        if flow is None:
            self._provisioner.hold(self._registry.open(key, event.function, domain), now=self.now)
            return
        self._retire(flow, "its function has a newer version")
        self._batching.forget(flow)
        self._provisioner.succeeded(flow)
        self._registry.set_function(flow, event.function)
        domain.policy.redeployed(flow, domain.view)
        hold_back(flow)
        admit(flow)
        self._registry.refitted.pop(flow.index, None)
        if flow.misfit is not None:
            self._admitter.executions.flow_closed(flow)
            self._calls.fail_queued(flow, flow.misfit, now=self.now)
        flow.stop_waiting()
        self._provisioner.hold(flow, now=self.now)

    def removed(self, event: FunctionRemoved) -> None:
        self._close(self._registry.flow(event.tenant, event.function), "its function was removed")

    def _close(self, flow: Flow, reason: str) -> None:
        self._admitter.flow_closed(flow)
        self._calls.fail_queued(flow, reason, now=self.now)
        self._retire(flow, reason)
        self._pool.flow_closed(flow)
        flow.stop_waiting()
        if flow.spec.datasets:
            self._prefetcher.function_removed(*flow.key, flow.spec.datasets)
        self._batching.forget(flow)
        self._registry.close(flow)

    def _retire(self, flow: Flow, reason: str) -> None:
        """Stop the flow's idle sandboxes now, and the others when they become idle."""
        for sandbox in list(flow.sandboxes.values()):
            sandbox.retired = reason
            if sandbox.invocation is None:
                self._pool.stop(sandbox, reason)
