"""How often and how many at once a namespace may invoke.

Minutes are those of the wall clock as it stood when the gateway started, carried on by the monotonic clock: a wall
clock that jumps neither opens a new minute early nor keeps an old one.
"""

import time
from collections.abc import Callable

from aliquot.live.gateway.refusal import Refusal
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.records import Namespace


def steady_clock() -> Callable[[], float]:
    """Seconds since the epoch that only ever go forward, at the pace of the monotonic clock."""
    offset = time.time() - time.monotonic()
    monotonic = time.monotonic
    return lambda: monotonic() + offset


class Gate:
    """One namespace's; `running` is kept by whoever lets calls through."""

    __slots__ = ("_gates", "at_once", "count", "minute_ends", "per_minute", "running")

    def __init__(self, gates: "Gates") -> None:
        self._gates = gates
        self.per_minute: int | None = None
        self.at_once: int | None = None
        self.minute_ends = 0.0
        self.count = 0
        self.running = 0

    def check(self) -> None:
        """Count one request; raises a 429 when it is one too many."""
        if self.per_minute is not None:
            now = self._gates.clock()
            if now >= self.minute_ends:
                self.minute_ends = now // 60 * 60 + 60
                self.count = 0
            self.count += 1
            if self.count > self.per_minute:
                counts = f"(count: {self.count}, allowed: {self.per_minute})"
                raise Refusal(429, f"Too many requests in the last minute {counts}.")
        if self.at_once is not None and self.running >= self.at_once:
            counts = f"(count: {self.running}, allowed: {self.at_once})"
            raise Refusal(429, f"Too many concurrent requests in flight {counts}.")


class Gates:
    """They outlive changes of their namespace: what runs is still counted."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.clock = steady_clock()
        self._by_name: dict[str, Gate] = {}

    def gate(self, namespace: Namespace) -> Gate:
        gate = self._by_name.get(namespace.name)
        if gate is None:
            gate = self._by_name[namespace.name] = Gate(self)
        gate.per_minute, gate.at_once = self.bounds(namespace)
        return gate

    def bounds(self, namespace: Namespace) -> tuple[int | None, int | None]:
        quota, settings = namespace.quota, self._settings
        per_minute, at_once = quota.invocations_per_minute, quota.concurrent_invocations
        return (
            settings.invocations_per_minute if per_minute is None else per_minute,
            settings.concurrent_invocations if at_once is None else at_once,
        )
