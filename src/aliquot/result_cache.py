"""A cache for the results of pure functions, with the calls that wait for an equal one that is under way.

Each tenant has results of its own. If the cache is full, the tenant whose results take the most bytes for its weight
loses one of them, by GDSF. The time is an argument, so both shells use the same class.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from aliquot.core.interfaces import Params
from aliquot.core.units import MIB
from aliquot.policies.eviction.gdsf import Gdsf

MAX_RESULT_BYTES = MIB
ENTRY_BYTES = 512  # of an entry without its result

V = TypeVar("V")
W = TypeVar("W")


class ResultKey(NamedTuple):
    """The identity of a result: equal arguments of the same version of a function, for one tenant."""

    tenant: str
    function: str
    revision: str
    form: str  # of arguments and result, such as json
    digest: bytes  # of the arguments


class CachedResult(Generic[V]):
    """One result in the cache."""

    __slots__ = ("bytes", "expires", "id", "key", "reload_s", "uses", "value")

    def __init__(self, number: int, key: ResultKey, value: V, size: int, run_s: float, expires: float) -> None:
        self.id = number
        self.key = key
        self.value = value
        self.bytes = size + ENTRY_BYTES
        self.reload_s = run_s  # to compute it again
        self.expires = expires
        self.uses = 1

    def next_use_s(self, now: float) -> float | None:
        return None


class TenantResults(Generic[V]):
    """The results of one tenant, by key."""

    __slots__ = ("by_key", "bytes", "order")

    def __init__(self) -> None:
        self.by_key: dict[ResultKey, CachedResult[V]] = {}
        self.order: Gdsf[CachedResult[V]] = Gdsf(Params())
        self.bytes = 0


class ResultCache(Generic[V, W]):
    """Results of type `V`, and waiting calls of type `W`."""

    def __init__(self, limit_bytes: int, weight_of: Callable[[str], float] = lambda _: 1.0) -> None:
        """A limit of 0 bytes caches nothing. `weight_of` returns the weight of a tenant."""
        self.limit_bytes = limit_bytes
        self._weight_of = weight_of
        self._tenants: dict[str, TenantResults[V]] = {}
        self._under_way: dict[ResultKey, list[W]] = {}  # calls that wait for the one that runs
        self._numbers = 0
        self.bytes = self.hits = self.shared = 0

    def __len__(self) -> int:
        return sum(len(own.by_key) for own in self._tenants.values())

    def find(self, key: ResultKey, *, now: float) -> V | None:
        """Return a result that has not expired, and count its use."""
        own = self._tenants.get(key.tenant)
        entry = None if own is None else own.by_key.get(key)
        if own is None or entry is None:
            return None
        if entry.expires <= now:
            self._drop(own, entry)
            return None
        entry.uses += 1
        own.order.add(entry, now=now)
        self.hits += 1
        return entry.value

    def join(self, key: ResultKey, waiter: W) -> bool:
        """Let a call wait for an equal one. Return False if none is under way: the call is then, and must run."""
        waiting = self._under_way.get(key)
        if waiting is None:
            self._under_way[key] = []
            return False
        waiting.append(waiter)
        return True

    def leave(self, key: ResultKey, waiter: W) -> bool:
        """Remove a call that waits for an equal one. Return whether it waited."""
        waiting = self._under_way.get(key, [])
        if waiter not in waiting:
            return False
        waiting.remove(waiter)
        return True

    def ended(self, key: ResultKey) -> list[W]:
        """End the call that was under way, and return those that waited for it."""
        return self._under_way.pop(key, [])

    def add(self, key: ResultKey, value: V, *, size: int, run_s: float, ttl_s: float, now: float) -> None:
        """Keep a result for `ttl_s`, if it is small enough. Results of others may be evicted for it."""
        if size > MAX_RESULT_BYTES or size + ENTRY_BYTES > self.limit_bytes:
            return
        own = self._tenants.setdefault(key.tenant, TenantResults())
        known = own.by_key.get(key)
        if known is not None:
            self._drop(own, known)
        self._numbers += 1
        entry = own.by_key[key] = CachedResult(self._numbers, key, value, size, run_s, now + ttl_s)
        own.order.add(entry, now=now)
        own.bytes += entry.bytes
        self.bytes += entry.bytes
        while self.bytes > self.limit_bytes:
            self._evict(now)

    def forget(self, tenant: str, function: str) -> None:
        """Forget the results of a function that is removed or has a new version."""
        own = self._tenants.get(tenant)
        for entry in [] if own is None else list(own.by_key.values()):
            if own is not None and entry.key.function == function:
                self._drop(own, entry)

    def _evict(self, now: float) -> None:
        fullest = max(self._tenants, key=lambda tenant: self._tenants[tenant].bytes / self._weight_of(tenant))
        own = self._tenants[fullest]
        victim = own.order.victim(now=now)
        if victim is not None:
            self._drop(own, victim)

    def _drop(self, own: TenantResults[V], entry: CachedResult[V]) -> None:
        own.order.forget(entry)
        del own.by_key[entry.key]
        own.bytes -= entry.bytes
        self.bytes -= entry.bytes
        if not own.by_key:
            del self._tenants[entry.key.tenant]
