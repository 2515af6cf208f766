"""The number of sandboxes that the server's descriptors allow, divided by tenant."""

from collections.abc import Callable, Iterable

from aliquot.budgets import Budget, Reservation
from aliquot.descriptors import DescriptorShares
from aliquot.live.node.base import Status
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.states import IDLE, StartError
from aliquot.live.node.zygotes import MAX_ZYGOTES


class SandboxBudget:
    """Counts the sandboxes of each tenant. One is counted until its channels are closed."""

    def __init__(self, descriptors: DescriptorShares) -> None:
        self.max_cells = descriptors.sandboxes
        ready_cells = min(MAX_ZYGOTES, descriptors.sandboxes // 4)
        self._budget = Budget("sandboxes", "sandboxes", descriptors.sandboxes - ready_cells)

    def reserve(
        self, tenant: str, sandboxes: Iterable[LocalSandbox], end: Callable[[LocalSandbox], None]
    ) -> Reservation:
        """Count a new sandbox. Beyond the tenant's part `end` is called with one of its idle sandboxes.

        Raises `StartError` if all of them are busy.
        """
        if not self._budget.fits(tenant, 1):
            own = (sandbox for sandbox in sandboxes if sandbox.launch.tenant == tenant)
            idle = next((sandbox for sandbox in own if sandbox.state == IDLE), None)
            if idle is None:
                raise StartError(Status.INTERNAL_ERROR, f"No sandbox can be made: {self._budget.refusal(tenant, 1)}.")
            end(idle)
        return Reservation(self._budget, tenant, 1)
