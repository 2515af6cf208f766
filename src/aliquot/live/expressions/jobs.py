"""Jobs for expression workers, in the order in which they are taken: fair between tenants, the quick ones apart.

Every job is first tried for a short time. One that takes longer is tried again with a longer limit, by another worker.
A tenant whose jobs take longer is not tried there again for a while, so it delays nobody but others of its kind.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from aliquot.live.expressions.messages import WorkerReply

QUICK, LONG, CHECKS = "quick", "long", "checks"
LIMITS_S = {QUICK: 0.05, LONG: 1.0, CHECKS: 10.0}  # of processor time, for a job that each kind of worker takes
SUSPECT_S = 30.0


@dataclass(slots=True)
class ExpressionJob:
    """A request of a tenant. `kind` is the kind of worker that gets it after the quick ones."""

    tenant: str
    kind: str
    frame: Callable[[float, set[str]], bytes]  # takes the limit, and the definitions that the worker has
    done: Callable[[WorkerReply], None]
    overran: Callable[[], None]


class JobQueue:
    """The jobs that wait, for each kind of worker. Tenants take turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, deque[ExpressionJob]]] = {kind: {} for kind in LIMITS_S}
        self._suspects: dict[str, float] = {}

    def add(self, job: ExpressionJob, now: float) -> str:
        """Add a job, and return the kind of worker that gets it."""
        if self._suspects.get(job.tenant, 0.0) > now:
            return self._put(job, job.kind)
        self._suspects.pop(job.tenant, None)
        return self._put(job, QUICK)

    def overran(self, job: ExpressionJob, kind: str, now: float) -> str | None:
        """Take back a job that has ended its worker. Returns the kind that tries it again, or None if none does."""
        self._suspects[job.tenant] = now + SUSPECT_S
        return self._put(job, job.kind) if kind == QUICK else None

    def take(self, kind: str) -> ExpressionJob | None:
        """Remove and return the next job for a kind of worker: the oldest one of the tenant whose turn it is."""
        tenants = self._waiting[kind]
        for tenant in tenants:
            jobs = tenants.pop(tenant)
            job = jobs.popleft()
            if jobs:
                tenants[tenant] = jobs  # behind the others
            return job
        return None

    def _put(self, job: ExpressionJob, kind: str) -> str:
        self._waiting[kind].setdefault(job.tenant, deque()).append(job)
        return kind
