"""Memory for large replies of sandboxes: a budget divided by tenant, and the connections that wait for it.

A reply gets its whole memory before the rest of it is read, so a reply that has begun can always be completed. Until
then nothing is read from its sandbox, which waits in the kernel. The memory is returned when the reply has been sent to
its caller and is on disk. Neither depends on another reply, so waiting ends. A tenant's waiting replies delay only its
own.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from aliquot.budgets import MappingBudget, Reservation

Retry = Callable[[], bool]  # returns whether the reply now has its memory, or needs it no longer


class ReplyMemory:
    """The memory of all large replies that have not been delivered yet."""

    def __init__(self, total_bytes: int, total_descriptors: int, loop: asyncio.AbstractEventLoop) -> None:
        self._budget = MappingBudget("large replies", total_bytes, total_descriptors, self._released)
        self._loop = loop
        self._waiting: dict[str, deque[Retry]] = {}  # by tenant, the first to come first
        self._waking = False

    @property
    def used(self) -> int:
        """The bytes of all replies that have memory."""
        return self._budget.bytes.used

    def reserve(self, tenant: str, size: int) -> tuple[Reservation, Reservation] | None:
        """Reserve memory for one reply, or return None if the tenant's part is in use."""
        return self._budget.reserve(tenant, size) if self._budget.fits(tenant, size) else None

    def is_awaited(self, tenant: str) -> bool:
        """Return whether replies of the tenant wait already. Later ones must not overtake them."""
        return tenant in self._waiting

    def wait(self, tenant: str, retry: Retry) -> None:
        """Call `retry` whenever memory is returned, until it returns true."""
        self._waiting.setdefault(tenant, deque()).append(retry)

    def refusal(self, tenant: str, size: int) -> str:
        """Return why a reply of this size has to wait."""
        return self._budget.bytes.refusal(tenant, size)

    def _released(self) -> None:
        if self._waiting and not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._wake)  # the last reference may be dropped on the writer's thread

    def _wake(self) -> None:
        self._waking = False
        for tenant, waiting in list(self._waiting.items()):
            while waiting and waiting[0]():
                waiting.popleft()
            if not waiting:
                del self._waiting[tenant]
