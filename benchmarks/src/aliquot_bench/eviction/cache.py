"""A cache of sized things under an eviction policy, and the bound that no policy can pass."""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from aliquot.policies.eviction import EVICTION

Requests = Sequence[tuple[int, int]]


class HitRates(NamedTuple):
    hits: float  # of the requests
    byte_hits: float  # of their bytes


class CachedBlock:
    """As the policies see what is cached. Bringing anything back takes as long: the classics assume so."""

    __slots__ = ("bytes", "id", "reload_s", "uses")

    def __init__(self, number: int, size: int) -> None:
        self.id = number
        self.bytes = size
        self.uses = 1
        self.reload_s = 1.0

    def next_use_s(self, now: float) -> float | None:
        return None


def replay(requests: Requests, size: int, policy: str) -> HitRates:
    """What a cache of that many bytes would have had."""
    kind = EVICTION[policy]
    order: Any = kind(kind.params_type())
    cached: dict[int, CachedBlock] = {}
    used = hits = byte_hits = 0
    for now, (number, asked) in enumerate(requests):
        entry = cached.get(number)
        if entry is not None:
            hits += 1
            byte_hits += asked
            entry.uses += 1
            order.remove(entry)
        elif asked > size:
            continue
        else:
            while used + asked > size:
                victim = order.victim(now=now)
                order.forget(victim)
                del cached[victim.id]
                used -= victim.bytes
            entry = cached[number] = CachedBlock(number, asked)
            used += asked
        order.add(entry, now=now)
    return _rates(requests, hits, byte_hits)


def belady(requests: Requests, size: int) -> HitRates:
    """What knows the future would have had: whatever is needed again last goes first, and is not even let in.

    The best there is where all things are of one size; where they are not, a rule of thumb that is hard to pass.
    """
    next_use = _next_uses(requests)
    cached: dict[int, int] = {}  # when it is needed again
    heap: list[tuple[int, int, int]] = []  # latest first; old ones are passed over
    used = hits = byte_hits = 0
    for now, (number, asked) in enumerate(requests):
        if number in cached:
            hits += 1
            byte_hits += asked
        elif asked > size:
            continue
        else:
            used += asked
        cached[number] = next_use[now]
        heappush(heap, (-next_use[now], number, asked))
        while used > size:
            when, victim, freed = heappop(heap)
            if cached.get(victim) == -when:
                del cached[victim]
                used -= freed
    return _rates(requests, hits, byte_hits)


def _next_uses(requests: Requests) -> list[int]:
    never = len(requests)
    seen: dict[int, int] = {}
    found = [never] * never
    for now in range(never - 1, -1, -1):
        number = requests[now][0]
        found[now] = seen.get(number, never + number)  # one number for each, so that the heap tells them apart
        seen[number] = now
    return found


def _rates(requests: Requests, hits: int, byte_hits: int) -> HitRates:
    return HitRates(hits / len(requests), byte_hits / sum(asked for _, asked in requests))
