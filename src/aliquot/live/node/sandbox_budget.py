"""The number of sandboxes that the server's descriptors allow, divided by tenant."""

from collections.abc import Callable, Iterable

from aliquot.budgets import Budget, Reservation
from aliquot.descriptors import DescriptorShares
from aliquot.live.node.base import Status
from aliquot.live.node.executors import Executor
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.states import GONE, IDLE, StartError
from aliquot.live.node.zygote_process import ZygoteProcess
from aliquot.live.node.zygotes import MAX_ZYGOTES


def free_zygote(zygote: ZygoteProcess, tenant: str, end: Callable[[LocalSandbox], None]) -> str | None:
    """End the tenant's sandboxes in a zygote if all are idle, and return an empty text: the zygote is free.

    Return the name of another tenant if only others use it. Return None if it is in use by the tenant.
    """
    listeners = [cell.listener for cell in zygote.cells]
    graphs = [one for each in listeners if isinstance(each, Executor) for one in each.sandboxes]
    users = [one for one in (*listeners, *graphs) if isinstance(one, LocalSandbox) and one.state != GONE]
    own = [one for one in users if one.launch.tenant == tenant]
    if zygote.is_awaited or any(one.state != IDLE for one in own):
        return None
    if len(users) > len(own):
        return next(one.launch.tenant for one in users if one.launch.tenant != tenant)
    for one in own:
        end(one)
    return ""


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
