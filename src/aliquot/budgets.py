"""Budgets: totals that tenants share, such as bytes of memory or open descriptors.

A tenant may hold as much as it leaves free. Alone it gets half of the total, beside one greedy tenant a third. So no
tenant can use a budget up, some of it is always left for the next one, and no share has to be configured. This is the
rule of dynamic thresholds, by which switches divide the memory for their queues (Choudhury and Hahne, 1998).
"""

import threading
from collections.abc import Callable

from aliquot.core.errors import AliquotError


class BudgetError(AliquotError):
    """A tenant holds its part of a budget already. The text names the budget and the limit."""


class Budget:
    """A total and what each tenant holds of it. Safe to use from several threads, because destructors return parts."""

    __slots__ = ("_held", "_lock", "_released", "_unit", "_what", "total", "used")

    def __init__(self, what: str, unit: str, total: int, released: Callable[[], None] | None = None) -> None:
        """`what` and `unit` are for error texts. `released` is called on any thread when something is returned."""
        self._what = what
        self._unit = unit
        self._released = released
        self._held: dict[str, int] = {}
        self._lock = threading.RLock()  # a destructor may run while this thread holds it
        self.total = total
        self.used = 0  # by all tenants

    def held(self, tenant: str) -> int:
        """Return how much the tenant holds."""
        return self._held.get(tenant, 0)

    def allowed(self, tenant: str) -> int:
        """Return how much the tenant may hold now, which is half of what the other tenants leave."""
        return max(0, self.total - self.used + self.held(tenant)) // 2

    def fits(self, tenant: str, amount: int) -> bool:
        return self.held(tenant) + amount <= self.allowed(tenant)

    def take(self, tenant: str, amount: int) -> None:
        """Add to what the tenant holds, even beyond its part. The caller returns it with `give_back`."""
        with self._lock:
            self._held[tenant] = self._held.get(tenant, 0) + amount
            self.used += amount

    def give_back(self, tenant: str, amount: int) -> None:
        with self._lock:
            left = self._held[tenant] - amount
            self.used -= amount
            if left:
                self._held[tenant] = left
            else:
                del self._held[tenant]
        if self._released is not None:
            self._released()

    def reserve(self, tenant: str, amount: int) -> "Reservation":
        """Take an amount that is returned with the last reference to the result. Raises `BudgetError`."""
        if not self.fits(tenant, amount):
            raise BudgetError(self.refusal(tenant, amount))
        return Reservation(self, tenant, amount)

    def refusal(self, tenant: str, amount: int) -> str:
        """Return why the tenant cannot have this amount."""
        held, allowed = self.held(tenant), self.allowed(tenant)
        return (
            f"{self._what}: the namespace holds {held} {self._unit} and asks for {amount} more; it may hold {allowed} "
            f"while other namespaces hold {self.used - held} of {self.total}"
        )


class Reservation:
    """A part of a budget, held until the last reference to this object is gone."""

    __slots__ = ("_amount", "_budget", "_tenant")

    def __init__(self, budget: Budget, tenant: str, amount: int) -> None:
        budget.take(tenant, amount)
        self._budget = budget
        self._tenant = tenant
        self._amount = amount

    def __del__(self) -> None:
        self._budget.give_back(self._tenant, self._amount)


class MappingBudget:
    """The bytes of memory mappings and their descriptors, which tenants share."""

    __slots__ = ("bytes", "descriptors")

    def __init__(
        self, what: str, total_bytes: int, total_descriptors: int, released: Callable[[], None] | None = None
    ) -> None:
        self.bytes = Budget(what, "bytes", total_bytes, released)
        self.descriptors = Budget(what, "descriptors", total_descriptors, released)

    def fits(self, tenant: str, size: int) -> bool:
        return self.bytes.fits(tenant, size) and self.descriptors.fits(tenant, 1)

    def reserve(self, tenant: str, size: int) -> tuple[Reservation, Reservation]:
        """Reserve the memory and the descriptor of one mapping. Raises `BudgetError`."""
        return self.bytes.reserve(tenant, size), self.descriptors.reserve(tenant, 1)
