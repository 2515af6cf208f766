"""The order of JSON checks: tenants take turns by the bytes that are checked for them. It has no clock and no I/O.

This is start-time fair queueing (Goyal, Vin and Cheng, 1996). A tenant that comes later begins where the others are, so
nobody saves up turns. The bodies of one tenant are checked in the order in which they came.
"""

from collections import deque
from typing import Generic, TypeVar

Check = TypeVar("Check")


class CheckQueue(Generic[Check]):
    """The waiting checks by tenant. The bytes of bodies are limited elsewhere, so their number is not limited here."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[Check, int]]] = {}
        self._begins: dict[str, int] = {}  # the turn of each tenant's next check, in bytes
        self._turn = 0  # that of the last check that was taken

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, tenant: str, check: Check, size: int) -> None:
        if tenant not in self._waiting:
            self._waiting[tenant] = deque()
            self._begins[tenant] = max(self._turn, self._begins.get(tenant, 0))
        self._waiting[tenant].append((check, size))

    def take(self) -> Check:
        """Return the next check, and remove it. There must be one."""
        tenant = min(self._waiting, key=self._begins.__getitem__)
        check, size = self._waiting[tenant].popleft()
        self._turn = self._begins[tenant]
        self._begins[tenant] += size
        if not self._waiting[tenant]:
            del self._waiting[tenant]
        if not self._waiting:  # the others would begin here anyway
            self._begins = {each: begin for each, begin in self._begins.items() if begin > self._turn}
        return check
