"""Answer calls of pure functions from a cache of results, and let equal calls that are under way share one run."""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from aliquot.core.units import MIB
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call, ChainCall, NestedCall
from aliquot.live.node.base import Outcome, Status
from aliquot.result_cache import ResultCache, ResultKey

MAX_PAYLOAD_BYTES = MIB  # larger arguments are not compared
_CACHED = note("cached", True)


class PureResult(NamedTuple):
    """A successful result."""

    result: bytes
    pickled: bytes | None
    run_s: float


class PureResults:
    """The results of functions with `pure` and `cache-ttl-ms`."""

    def __init__(
        self,
        cache: ResultCache[PureResult, Call],
        *,
        run: Callable[[Call], None],
        end: Callable[[Call, Outcome], None],
        now: Callable[[], float],
    ) -> None:
        """`run` passes a call to the scheduler, and `end` ends one with its outcome."""
        self.cache = cache
        self.ttls: dict[str, float] = {}  # by revision of the function, in seconds
        self._run = run
        self._end = end
        self._now = now

    def deployed(self, resolved: ResolvedAction, replaced: str | None) -> None:
        """Learn whether results of a function are kept. Those of the revision that it replaces are forgotten."""
        self.removed(resolved.tenant, resolved.function, replaced)
        needs = parse_needs(resolved.action)
        if needs.pure and needs.cache_ttl_s and self.cache.limit_bytes:
            self.ttls[resolved.action.revision] = needs.cache_ttl_s

    def removed(self, tenant: str, function: str, revision: str | None) -> None:
        if revision is not None and self.ttls.pop(revision, None) is not None:
            self.cache.forget(tenant, function)

    def take(self, call: Call) -> bool:
        """Answer a call from the cache, or let it wait for an equal one. Return False if it must run."""
        if call.action.revision not in self.ttls or isinstance(call, ChainCall | NestedCall):
            return False
        key = _key_of(call)
        if key is None:
            return False
        found = self.cache.find(key, now=self._now())
        if found is not None:
            self._answer(call, found)
            return True
        if call.objective is not None or call.stage is not None:  # it must not wait for a run whose end is not planned
            return False
        call.result_key = key
        if not self.cache.join(key, call):
            return False
        self.cache.shared += 1
        return True

    def withdraw(self, call: Call) -> bool:
        """Remove a call that waits for an equal one. Return whether it waited."""
        return call.result_key is not None and self.cache.leave(call.result_key, call)

    def ended(self, call: Call) -> None:
        """Keep the result of a call that has run, and answer those that waited for it. They do not share its error."""
        key, call.result_key = call.result_key, None
        if key is None:
            return
        waiting, found = self.cache.ended(key), _result_of(call)
        ttl_s = self.ttls.get(key.revision)
        if (
            found is not None
            and call.outcome is not None
            and ttl_s is not None
            and call.action.revision == key.revision
        ):
            size = len(found.result) + len(found.pickled or b"")
            self.cache.add(key, found, size=size, run_s=call.outcome.run_s, ttl_s=ttl_s, now=self._now())
        for other in waiting:
            other.result_key = None
            if found is not None:
                self._answer(other, found)
            elif not self.take(other):
                self._run(other)

    def _answer(self, call: Call, found: PureResult) -> None:
        call.notes += _CACHED
        call.run.begun_s = self._now()
        self._end(call, Outcome(Status.SUCCESS, found.result, 0.0, pickled=found.pickled))

    def status(self) -> dict[str, int]:
        cache = self.cache
        return {"entries": len(cache), "bytes": cache.bytes, "hits": cache.hits, "shared": cache.shared}


def _key_of(call: Call) -> ResultKey | None:
    """Return the key of a call, or None if its arguments are large or not in memory."""
    if call.on_disk or call.event or call.shared is not None or call.task is not None:
        return None
    if len(call.payload) > MAX_PAYLOAD_BYTES:
        return None
    form = "pickled" if call.pickled else "json"
    digest = blake2b(call.payload, digest_size=32).digest()
    return ResultKey(call.namespace.name, call.function, call.action.revision, form, digest)


def _result_of(call: Call) -> PureResult | None:
    outcome = call.outcome
    if outcome is None or outcome.status is not Status.SUCCESS or outcome.shared_buffer is not None:
        return None
    if not isinstance(outcome.result, bytes):  # it is large
        return None
    return PureResult(outcome.result, None if outcome.pickled is None else bytes(outcome.pickled), outcome.run_s)
