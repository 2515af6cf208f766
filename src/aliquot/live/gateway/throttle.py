"""How often a namespace may invoke and fire, and how many of its calls may be under way at once.

A composition is one call, whatever it runs.

Minutes are those of the wall clock as it stood when the gateway started, carried on by the monotonic clock: a wall
clock that jumps neither opens a new minute early nor keeps an old one.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from aliquot.live.gateway.refusal import Refusal
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.records import Namespace


def steady_clock() -> Callable[[], float]:
    """Seconds since the epoch that only ever go forward, at the pace of the monotonic clock."""
    offset = time.time() - time.monotonic()
    monotonic = time.monotonic
    return lambda: monotonic() + offset


class Minute:
    """How much has been asked for in the current one."""

    __slots__ = ("_count", "_ends", "_gates")

    def __init__(self, gates: "Gates") -> None:
        self._gates = gates
        self._ends = 0.0
        self._count = 0

    def count(self, allowed: int) -> None:
        """Raises a 429 when it is one too many."""
        now = self._gates.clock()
        if now >= self._ends:
            self._ends = now // 60 * 60 + 60
            self._count = 0
        self._count += 1
        if self._count > allowed:
            counts = f"(count: {self._count}, allowed: {allowed})"
            raise Refusal(429, f"Too many requests in the last minute {counts}.")


class Gate:
    """One namespace's; `running` is kept by whoever lets calls through."""

    __slots__ = ("_fires", "_invocations", "at_once", "fires_per_minute", "per_minute", "running")

    def __init__(self, gates: "Gates") -> None:
        self._invocations = Minute(gates)
        self._fires = Minute(gates)
        self.per_minute: int | None = None
        self.at_once: int | None = None
        self.fires_per_minute: int | None = None
        self.running = 0

    def check(self) -> None:
        """Count one invocation; raises a 429 when it is one too many."""
        if self.per_minute is not None:
            self._invocations.count(self.per_minute)
        if self.at_once is not None and self.running >= self.at_once:
            counts = f"(count: {self.running}, allowed: {self.at_once})"
            raise Refusal(429, f"Too many concurrent requests in flight {counts}.")

    def check_fire(self) -> None:
        """Count one fire of a trigger; raises a 429 when it is one too many."""
        if self.fires_per_minute is not None:
            self._fires.count(self.fires_per_minute)


class Bounds(NamedTuple):
    """None: there is none."""

    per_minute: int | None
    at_once: int | None
    fires_per_minute: int | None


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
        gate.per_minute, gate.at_once, gate.fires_per_minute = self.bounds(namespace)
        return gate

    def bounds(self, namespace: Namespace) -> Bounds:
        quota, settings = namespace.quota, self._settings
        return Bounds(
            _first(quota.invocations_per_minute, settings.invocations_per_minute),
            _first(quota.concurrent_invocations, settings.concurrent_invocations),
            _first(quota.fires_per_minute, settings.fires_per_minute),
        )


def _first(own: int | None, usual: int | None) -> int | None:
    return usual if own is None else own
