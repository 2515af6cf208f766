"""Kept results in a simulation. Calls with the same key have the same result, and only the first of them runs."""

from msgspec import Struct

from aliquot.core.units import KIB, MIB
from aliquot.result_cache import ResultCache, ResultKey
from aliquot.sim.arrivals import Arrival
from aliquot.sim.recorder import RunRecorder


class ResultSettings(Struct, frozen=True):
    """The time for which results are kept, the memory for them, and their size. With 0 seconds none are kept."""

    ttl_s: float = 0
    limit_bytes: int = 256 * MIB
    result_bytes: int = 4 * KIB


class SimulatedResults:
    """Answers calls whose result is kept, and lets equal calls wait for the one that runs."""

    def __init__(self, settings: ResultSettings, weights: dict[str, float], recorder: RunRecorder) -> None:
        self._settings = settings
        self._recorder = recorder
        self._cache: ResultCache[bool, Arrival] = ResultCache(
            settings.limit_bytes, lambda tenant: weights.get(tenant, 1)
        )
        self._keys: dict[str, ResultKey] = {}  # of calls that run
        self.answered = 0

    def take(self, name: str, arrival: Arrival, now: float) -> bool:
        """Answer a call, or let it wait for an equal one. Return False if it must run."""
        if arrival.key is None or not self._settings.ttl_s:
            return False
        key = ResultKey(arrival.tenant, arrival.function, "", "", arrival.key.encode())
        if self._cache.find(key, now=now):
            self._answer(arrival, now)
            return True
        if self._cache.join(key, arrival):
            return True
        self._keys[name] = key
        return False

    def completed(self, name: str, run_s: float, now: float) -> None:
        """Keep the result of a call, and answer those that waited for it."""
        key = self._keys.pop(name, None)
        if key is None:
            return
        settings = self._settings
        size, ttl_s = settings.result_bytes, settings.ttl_s
        self._cache.add(key, True, size=size, run_s=run_s, ttl_s=ttl_s, now=now)
        for arrival in self._cache.ended(key):
            self._answer(arrival, now)

    def failed(self, name: str) -> list[Arrival]:
        """Return the calls that waited for one without a result. They do not share its end."""
        key = self._keys.pop(name, None)
        return [] if key is None else self._cache.ended(key)

    def _answer(self, arrival: Arrival, now: float) -> None:
        self.answered += 1
        self._recorder.cached(arrival, now)
