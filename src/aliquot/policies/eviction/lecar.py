"""LeCaR (Vietri et al., HotStorage 2018): learn from regrets whether recency or frequency is the better guide.

Two experts, `lru` and `lfu`, each name a victim, and one is followed in proportion to its weight. The history of the
expert that named a victim keeps its number. If that entry comes back, the expert was wrong, and the weight of the other
grows, the more so the more recent the mistake. The paper chooses at random. Here the experts take turns in the same
proportion, because decisions must not depend on chance.

Regrets are short-sighted: on some traces the paper's mixture is ten points below one of its experts. So each expert
also runs alone on the numbers of the entries, without their content. While one of them alone has clearly more hits than
the mixture had lately, it is followed without the other.
"""

from collections import OrderedDict
from math import exp, inf
from typing import Generic

from aliquot.core.interfaces import E, Eviction, Params
from aliquot.policies.eviction.lfu import Lfu
from aliquot.policies.eviction.lru import Lru

LEARNING_RATE = 0.45
DISCOUNT = 0.005  # factor left of a regret after as many turns as there are entries
MAX_BEHIND = 0.002  # share of hits by which the mixture may be below an expert alone
MEMORY = 20_000  # turns over which hits are compared


class ExpertAlone(Generic[E]):
    """The entries that an expert would keep in the same space, and its share of hits lately."""

    def __init__(self, order: Eviction[E]) -> None:
        self.order = order
        self.hits = 0.0  # lately, as a share
        self._sizes: dict[int, int] = {}
        self._bytes = 0

    def use(self, entry: E, max_bytes: float, gain: float, *, now: float) -> None:
        """Count whether it would have had the entry, and add it, evicting others above `max_bytes`."""
        hit = entry.id in self._sizes
        self.hits += gain * (hit - self.hits)
        self.order.remove(entry)
        self._bytes += entry.bytes - self._sizes.get(entry.id, 0)
        self._sizes[entry.id] = entry.bytes
        while self._bytes > max_bytes and (victim := self.order.victim(now=now)) is not None:
            self.order.forget(victim)
            self._bytes -= self._sizes.pop(victim.id)
        self.order.add(entry, now=now)

    def drop(self, entry: E) -> None:
        """Forget an entry that is gone for another reason than an eviction."""
        self.order.forget(entry)
        self._bytes -= self._sizes.pop(entry.id, 0)


class LeCaR(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.lru_weight = 0.5  # lfu's weight is the rest to 1
        self._lru: Lru[E] = Lru(params)
        self._lfu: Lfu[E] = Lfu(params)
        self._present: set[int] = set()
        self._regrets: dict[bool, OrderedDict[int, int]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }  # by whether lru named it
        self._evicted_uses: dict[int, int] = {}  # restored when it comes back
        self._alone: dict[bool, ExpertAlone[E]] = {True: ExpertAlone(Lru(params)), False: ExpertAlone(Lfu(params))}
        self._hits = 0.0  # share of hits lately
        self._sizes: dict[int, int] = {}  # of entries that are present
        self._bytes = 0
        self._max_bytes = inf  # that were present when one had to go
        self._turn = self._full_at = 0
        self._credit = 0.0
        self._named: tuple[int, bool] | None = None
        self._victim: int | None = None  # the last one

    def add(self, entry: E, *, now: float) -> None:
        self._turn += 1
        self._compare(entry, now)
        if entry.id not in self._present:
            self._present.add(entry.id)
            self._learn(entry.id)
            self._lfu.count(entry, self._evicted_uses.pop(entry.id, 0))
        self._lru.add(entry, now=now)
        self._lfu.add(entry, now=now)

    def remove(self, entry: E) -> None:
        self._lru.remove(entry)
        self._lfu.remove(entry)

    def forget(self, entry: E) -> None:
        self.remove(entry)
        self._present.discard(entry.id)
        self._bytes -= self._sizes.pop(entry.id, 0)
        uses = self._lfu.uses(entry)
        self._lfu.forget(entry)
        if self._victim != entry.id:
            for expert in self._alone.values():
                expert.drop(entry)
        if self._named is not None and self._named[0] == entry.id:
            self._remember(entry.id, uses, was_lru=self._named[1])

    def victim(self, *, now: float) -> E | None:
        chosen = self._choose(now)
        self._victim = None if chosen is None else chosen.id
        return chosen

    def _choose(self, now: float) -> E | None:
        by_lru, by_lfu = self._lru.victim(now=now), self._lfu.victim(now=now)
        if by_lru is None or by_lfu is None:
            return None
        if self._turn > self._full_at:  # of several evictions in a row only the first finds the space full
            self._full_at, self._max_bytes = self._turn, self._bytes
        if self._named is not None and self._named[0] in {by_lru.id, by_lfu.id} and self._named[0] in self._present:
            return by_lru if self._named[0] == by_lru.id else by_lfu  # called again, and nothing has changed
        if by_lru is by_lfu:  # both agree, so neither is to blame
            self._named = None
            return by_lru
        follow_lru = self._follows_lru()
        chosen = by_lru if follow_lru else by_lfu
        self._named = (chosen.id, follow_lru)
        return chosen

    def _compare(self, entry: E, now: float) -> None:
        """Count hits of the mixture and of each expert alone."""
        gain = max(1 / self._turn, 1 / MEMORY)
        self._hits += gain * ((entry.id in self._present) - self._hits)
        self._bytes += entry.bytes - self._sizes.get(entry.id, 0)
        self._sizes[entry.id] = entry.bytes
        for expert in self._alone.values():
            expert.use(entry, self._max_bytes, gain, now=now)

    def _follows_lru(self) -> bool:
        """Return which expert is followed: one that is clearly better alone, or else the one whose turn it is."""
        lru, lfu = self._alone[True].hits, self._alone[False].hits
        if max(lru, lfu) > self._hits + MAX_BEHIND:
            return lru >= lfu
        self._credit += self.lru_weight
        follow_lru = self._credit >= 1
        self._credit -= follow_lru
        return follow_lru

    def _learn(self, number: int) -> None:
        for was_lru, regrets in self._regrets.items():
            turn = regrets.pop(number, None)
            if turn is None:
                continue
            factor = exp(LEARNING_RATE * DISCOUNT ** ((self._turn - turn) / max(len(self._present), 1)))
            lru, lfu = self.lru_weight, 1 - self.lru_weight
            lru, lfu = (lru, lfu * factor) if was_lru else (lru * factor, lfu)
            self.lru_weight = min(0.99, max(0.01, lru / (lru + lfu)))  # so that either expert can recover

    def _remember(self, number: int, uses: int, *, was_lru: bool) -> None:
        regrets = self._regrets[was_lru]
        regrets[number] = self._turn
        self._evicted_uses[number] = uses
        while len(regrets) > max(len(self._present), 1):
            oldest, _ = regrets.popitem(last=False)
            self._evicted_uses.pop(oldest, None)
