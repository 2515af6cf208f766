"""The order of builds: few at once, fair among tenants, and none that failed a moment ago. It has no clock and no I/O.

A tenant whose builds run least is served first, and among equals the one that was served longest ago. The last place is
kept for a tenant that has no build running. Several tenants may wait for one build. It is taken from the queue of the
first whose turn comes.
"""

from collections.abc import Callable

from msgspec import Struct

FIRST_DELAY_S, MAX_DELAY_S = 10, 600
MAX_FAILURES = 1000  # on record; the oldest is forgotten first


class BuildStatus(Struct, frozen=True):
    """An environment that is being built or waits for its turn, for the operator's status."""

    tenants: tuple[str, ...]  # who asked for it, the first one first
    requirements: tuple[str, ...]
    running: bool
    asked_s_ago: float


class BuildFailure(Struct, frozen=True):
    """A failed build: how often it failed in a row, when it may be tried again, and its error."""

    times: int
    retry_at_s: float
    error: Exception


class BuildFailures:
    """The builds that failed lately. Each failure in a row doubles the time until the next attempt."""

    def __init__(self) -> None:
        self._failures: dict[str, BuildFailure] = {}

    def find(self, name: str, *, now_s: float) -> BuildFailure | None:
        """Return the failure of a build that must not be tried again yet."""
        failure = self._failures.get(name)
        return failure if failure is not None and now_s < failure.retry_at_s else None

    def add(self, name: str, error: Exception, *, now_s: float) -> None:
        before = self._failures.pop(name, None)
        times = 1 if before is None else before.times + 1
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(times - 1, 32))
        self._failures[name] = BuildFailure(times, now_s + delay_s, error)
        if len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]

    def forget(self, name: str) -> None:
        self._failures.pop(name, None)


class BuildQueue:
    """The builds that wait and run, by tenant."""

    def __init__(self, at_once: int, waiting: int, begin: Callable[[str], None]) -> None:
        """`waiting` bounds the waiting builds of one tenant. `begin` is called with each build whose turn has come."""
        self._at_once = at_once
        self._max_waiting = waiting
        self._begin = begin
        self._waiting: dict[str, dict[str, None]] = {}  # names by tenant
        self._running: dict[str, str] = {}  # the tenant that is charged, by name
        self._served: dict[str, int] = {}  # the turn in which each tenant was served last
        self._turns = 0

    @property
    def waiting(self) -> int:
        return len({name for names in self._waiting.values() for name in names})

    @property
    def running(self) -> int:
        return len(self._running)

    def is_running(self, name: str) -> bool:
        return name in self._running

    def is_full(self, tenant: str) -> bool:
        """Return whether the tenant has as many waiting builds as it may."""
        return len(self._waiting.get(tenant, ())) >= self._max_waiting

    def add(self, name: str, tenant: str) -> None:
        """Add a build, or another tenant that waits for it."""
        if name not in self._running:
            self._waiting.setdefault(tenant, {})[name] = None
            self._begin_next()

    def ended(self, name: str) -> None:
        """Remove a build that has ended, or that was never begun, and begin the next."""
        self._running.pop(name, None)
        self._withdraw(name)
        self._begin_next()

    def _withdraw(self, name: str) -> None:
        for tenant in list(self._waiting):
            self._waiting[tenant].pop(name, None)
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    def _begin_next(self) -> None:
        while (tenant := self._next_tenant()) is not None:
            name = next(iter(self._waiting[tenant]))
            self._turns += 1
            self._served[tenant] = self._turns
            self._withdraw(name)
            self._running[name] = tenant
            self._begin(name)

    def _next_tenant(self) -> str | None:
        """Return the tenant whose build begins next, or None if all must wait."""
        free = self._at_once - len(self._running)
        counts = dict.fromkeys(self._waiting, 0)
        for tenant in self._running.values():
            if tenant in counts:
                counts[tenant] += 1
        if not counts or free < 1:
            return None
        tenant = min(counts, key=lambda each: (counts[each], self._served.get(each, 0)))
        return tenant if counts[tenant] == 0 or free > 1 else None
