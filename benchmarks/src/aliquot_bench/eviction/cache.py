"""A cache of blocks under an eviction policy, and Belady's bound, which no policy can exceed."""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from aliquot.policies.eviction import EVICTION

Requests = Sequence[tuple[int, int]]  # number of the block, and its size in bytes


class HitRates(NamedTuple):
    """The parts of requests and of bytes that a cache served."""

    hits: float
    byte_hits: float


class CachedBlock:
    """A cached block as the policies see it. Every reload takes the same time, as the classic policies assume."""

    __slots__ = ("bytes", "id", "reload_s", "uses")

    def __init__(self, number: int, size: int) -> None:
        self.id = number
        self.bytes = size
        self.uses = 1
        self.reload_s = 1.0

    def next_use_s(self, now: float) -> float | None:
        return None


def replay(requests: Requests, size: int, policy: str) -> HitRates:
    """Return the hit rates of a cache of this size under a policy."""
    kind = EVICTION[policy]
    order: Any = kind(kind.params_type())
    cached: dict[int, CachedBlock] = {}
    used = hits = byte_hits = 0
    for now, (number, block_bytes) in enumerate(requests):
        entry = cached.get(number)
        if entry is not None:
            hits += 1
            byte_hits += block_bytes
            entry.uses += 1
            order.remove(entry)
        elif block_bytes > size:
            continue
        else:
            while used + block_bytes > size:
                victim = order.victim(now=now)
                order.forget(victim)
                del cached[victim.id]
                used -= victim.bytes
            entry = cached[number] = CachedBlock(number, block_bytes)
            used += block_bytes
        order.add(entry, now=now)
    return _rates(requests, hits, byte_hits)


def belady(requests: Requests, size: int) -> HitRates:
    """Return the hit rates of a policy that knows the future: it evicts the block that is needed again last.

    This is optimal for blocks of one size. For blocks of several sizes it is a heuristic that is hard to exceed.
    """
    next_use = _next_uses(requests)
    cached: dict[int, int] = {}  # by number, the request that needs it next
    heap: list[tuple[int, int, int]] = []  # latest next use first, with entries that are out of date
    used = hits = byte_hits = 0
    for now, (number, block_bytes) in enumerate(requests):
        if number in cached:
            hits += 1
            byte_hits += block_bytes
        elif block_bytes > size:
            continue
        else:
            used += block_bytes
        cached[number] = next_use[now]
        heappush(heap, (-next_use[now], number, block_bytes))
        while used > size:
            when, victim, freed = heappop(heap)
            if cached.get(victim) == -when:
                del cached[victim]
                used -= freed
    return _rates(requests, hits, byte_hits)


def _next_uses(requests: Requests) -> list[int]:
    """Return for each request when its block is requested next."""
    never = len(requests)
    seen: dict[int, int] = {}
    found = [never] * never
    for now in range(never - 1, -1, -1):
        number = requests[now][0]
        found[now] = seen.get(number, never + number)  # distinct for each block, so that the heap can tell them apart
        seen[number] = now
    return found


def _rates(requests: Requests, hits: int, byte_hits: int) -> HitRates:
    return HitRates(hits / len(requests), byte_hits / sum(block_bytes for _, block_bytes in requests))
