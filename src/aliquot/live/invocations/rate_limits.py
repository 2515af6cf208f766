"""Rate limits of a namespace: invocations and fires per minute, calls that run at once, and memory for payloads.

A composition counts as one call, however many components it runs. Calls at once and bytes of payloads have totals for
all namespaces, of which each gets half of what the others leave (`aliquot.budgets`). A small payload is not counted by
its bytes.

Minutes follow the wall clock as it stood when the server started, continued by the monotonic clock. A wall clock that
jumps neither starts a new minute early nor prolongs an old one.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from aliquot.budgets import BudgetError, MappingBudget
from aliquot.core.units import GIB
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.errors import RateLimitError
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES
from aliquot.live.store.records import Namespace


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since the epoch that only moves forward."""
    offset = time.time() - time.monotonic()
    monotonic = time.monotonic
    return lambda: monotonic() + offset


class MinuteCounter:
    """Counts requests within the current minute."""

    __slots__ = ("_clock", "_count", "_ends")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends = 0.0
        self._count = 0

    def count(self, allowed: int) -> None:
        """Count one request. Raises `RateLimitError` beyond the allowed number."""
        now = self._clock()
        if now >= self._ends:
            self._ends = now // 60 * 60 + 60
            self._count = 0
        self._count += 1
        if self._count > allowed:
            counts = f"(count: {self._count}, allowed: {allowed})"
            raise RateLimitError(f"Too many requests in the last minute {counts}.")


class RateLimits(NamedTuple):
    """Limits of one namespace. None means no limit."""

    invocations_per_minute: int | None = None
    concurrent_invocations: int | None = None
    fires_per_minute: int | None = None


class CallTotals:
    """The calls of all namespaces that have not ended, and the memory of all payloads."""

    __slots__ = ("max_running", "payloads", "running")

    def __init__(self, max_running: int = 32_768, payloads: MappingBudget | None = None) -> None:
        self.max_running = max_running
        self.payloads = payloads or MappingBudget("payloads", GIB, max_running)
        self.running = 0


class RateLimiter:
    """Applies the limits of one namespace. Every call that is admitted begins and ends here."""

    __slots__ = ("_fires", "_invocations", "_totals", "limits", "running", "tenant")

    def __init__(self, tenant: str, clock: Callable[[], float], limits: RateLimits, totals: CallTotals) -> None:
        self._invocations = MinuteCounter(clock)
        self._fires = MinuteCounter(clock)
        self._totals = totals
        self.tenant = tenant
        self.limits = limits
        self.running = 0

    def check(self) -> None:
        """Count one invocation. Raises `RateLimitError` beyond a limit."""
        per_minute, at_once, _ = self.limits
        if per_minute is not None:
            self._invocations.count(per_minute)
        totals = self._totals
        if at_once is not None or self.running + totals.running >= totals.max_running - 1:
            self._check_running(at_once)

    def _check_running(self, at_once: int | None) -> None:
        totals, running = self._totals, self.running
        allowed = (totals.max_running - totals.running + running) // 2
        if at_once is not None and at_once < allowed:
            allowed = at_once
        if running >= allowed:
            raise RateLimitError(f"Too many concurrent requests in flight (count: {running}, allowed: {allowed}).")

    def begin(self, call: Call) -> None:
        """Count a call that begins. Raises `RateLimitError` if there is no memory for its payload."""
        payload = call.payload
        if len(payload) > SMALL_PAYLOAD_BYTES and type(payload) is bytes:  # others have reserved their memory
            try:
                call.reserved = self._totals.payloads.bytes.reserve(self.tenant, len(payload))
            except BudgetError as error:
                raise RateLimitError(str(error)) from error
        self.running += 1
        self._totals.running += 1

    def end(self) -> None:
        """Count a call that has ended, or that was not taken after all."""
        self.running -= 1
        self._totals.running -= 1

    def check_fire(self) -> None:
        """Count one fire of a trigger. Raises `RateLimitError` beyond the limit."""
        if self.limits.fires_per_minute is not None:
            self._fires.count(self.limits.fires_per_minute)


class RateLimiters:
    """The limiters of all namespaces. A limiter survives changes of its namespace, so running calls stay counted."""

    def __init__(
        self, defaults: RateLimits, clock: Callable[[], float] | None = None, totals: CallTotals | None = None
    ) -> None:
        self._defaults = defaults
        self._clock = clock or steady_clock()
        self.totals = totals or CallTotals()
        self._by_namespace: dict[str, RateLimiter] = {}

    def limiter(self, namespace: Namespace) -> RateLimiter:
        """Return the namespace's limiter, with its current limits."""
        limits = self.limits(namespace)
        limiter = self._by_namespace.get(namespace.name)
        if limiter is None:
            limiter = self._by_namespace[namespace.name] = RateLimiter(namespace.name, self._clock, limits, self.totals)
        limiter.limits = limits
        return limiter

    def limits(self, namespace: Namespace) -> RateLimits:
        """Return the namespace's quota, with the defaults where it has none."""
        quota, defaults = namespace.quota, self._defaults
        return RateLimits(
            _first(quota.invocations_per_minute, defaults.invocations_per_minute),
            _first(quota.concurrent_invocations, defaults.concurrent_invocations),
            _first(quota.fires_per_minute, defaults.fires_per_minute),
        )


def _first(own: int | None, default: int | None) -> int | None:
    return default if own is None else own
