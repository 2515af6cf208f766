"""Choose whose file is fetched next. Tenants take turns, and so do a tenant's audiences, within a budget.

One tenant may use at most half of the budget, so there is always room for another. A file that is larger than the free
budget is fetched alone. It waits until the other fetches have ended, and nothing overtakes it, as for calls that fit
nowhere (decision 0004). A tenant that has used up its half does not delay the others.
"""

from aliquot.core.interfaces import FetchLimits
from aliquot.core.prefetching.records import Audience, PrefetchFile, TenantQueue, WantedFile

TENANT_DIVISOR = 2  # one tenant may use 1/2 of the budget


class FetchQueue:
    """The queues of all tenants, and the part of the budget in use."""

    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits
        self.tenant_limits = FetchLimits(
            limits.bytes // TENANT_DIVISOR, max(limits.fetches // TENANT_DIVISOR, min(limits.fetches, 1))
        )
        self.tenants: dict[str, TenantQueue] = {}
        self.ready: dict[str, TenantQueue] = {}  # tenants that may have a file to fetch, the next one first
        self.bytes = self.fetches = 0  # in flight

    def tenant(self, name: str) -> TenantQueue:
        queue = self.tenants.get(name)
        if queue is None:
            queue = self.tenants[name] = TenantQueue(name)
        return queue

    def drop_if_empty(self, queue: TenantQueue) -> None:
        """Forget a tenant without audiences and fetches."""
        if not queue.audiences and not queue.fetches:
            self.tenants.pop(queue.tenant, None)
            self.ready.pop(queue.tenant, None)

    def requeue(self, audience: Audience) -> None:
        """Queue an audience that may have a file to fetch which could not begin before."""
        queue = audience.queue
        queue.waiting.setdefault(audience.session, audience)
        self.ready.setdefault(queue.tenant, queue)

    def take(self) -> tuple[Audience, WantedFile] | None:
        """Return the audience whose turn it is and its next file, or None if there is no budget for any."""
        while self.ready:
            tenant, queue = next(iter(self.ready.items()))
            found = queue.first()
            if found is None or not _has_budget(queue, found[1].file, self.tenant_limits):
                del self.ready[tenant]  # until one of its fetches ends, or it wants another file
                continue
            if not _has_budget(self, found[1].file, self.limits):
                return None
            session = found[0].session
            self.ready[tenant] = self.ready.pop(tenant)
            queue.waiting[session] = queue.waiting.pop(session)
            return found
        return None

    def begin(self, file: PrefetchFile, queue: TenantQueue) -> None:
        """Charge the file to the budget and to the tenant."""
        file.charged_to = queue
        for counts in (self, queue):
            counts.bytes += file.size
            counts.fetches += 1

    def end(self, file: PrefetchFile) -> None:
        """Free the file's part of the budget, and queue the tenant again if it has more files to fetch."""
        queue = file.charged_to
        if queue is None:
            return
        file.charged_to = None
        for counts in (self, queue):
            counts.bytes -= file.size
            counts.fetches -= 1
        if queue.waiting:
            self.ready.setdefault(queue.tenant, queue)
        self.drop_if_empty(queue)


def _has_budget(counts: FetchQueue | TenantQueue, file: PrefetchFile, limits: FetchLimits) -> bool:
    if not counts.fetches:
        return limits.fetches > 0
    return counts.fetches < limits.fetches and counts.bytes + file.size <= limits.bytes
