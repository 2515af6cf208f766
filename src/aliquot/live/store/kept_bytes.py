"""The bytes that the store keeps for each namespace beside its records: entities with their code, and queued bodies.

A write that would exceed the namespace's limit is refused. Records are removed instead, when the store is pruned.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from aliquot.core.units import GIB, MIB
from aliquot.live.store.base import DocumentChange, Put, StoreError
from aliquot.live.store.records import Accepted, name_of_owner

DEFAULT_KEPT_BYTES = 4 * GIB
# Written by the platform itself, and small.
EXEMPT = frozenset(["namespaces", "secrets", "session uses"])
DOCUMENTS = "SELECT collection, namespace, name, length(body) FROM document"
QUEUED = (
    "SELECT id, namespace, length(payload) + "
    "(SELECT ifnull(sum(length(body)), 0) FROM piece WHERE piece.id = queue.id AND kind = 0), "
    # The first call of an event counts its body.
    "CASE WHEN event = '' OR EXISTS (SELECT 1 FROM queue AS other WHERE other.event != '' "
    "AND other.event = queue.event AND other.seq < queue.seq) THEN 0 "
    "ELSE (SELECT length(body) FROM event WHERE event.id = queue.event) END FROM queue"
)
EXECUTIONS = (
    "SELECT id, namespace, length(body) + (SELECT ifnull(sum(length(body)), 0) FROM execution_event "
    "WHERE execution = execution.id) + (SELECT ifnull(sum(length(body)), 0) FROM execution_object "
    "WHERE execution = execution.id) FROM execution WHERE status = 'RUNNING'"
)

DocumentKey = tuple[str, str, str]


class QuotaError(StoreError):
    """A namespace keeps as much as it may. The text names usage and limit, and is for tenants."""

    def __init__(self, text: str) -> None:
        super().__init__(text, text)


class KeptBytes:
    """Counts what is kept for each namespace, and refuses what exceeds its limit. Used on the event loop's thread."""

    def __init__(self, default: int | None = DEFAULT_KEPT_BYTES) -> None:
        self._default = default
        self._limits: dict[str, int] = {}  # of namespaces that do not have the default
        self._documents: dict[DocumentKey, int] = {}
        self._queued: dict[str, tuple[str, int]] = {}  # by activation id: namespace and size
        self._used: dict[str, int] = {}  # by namespace

    def load(self, connection: sqlite3.Connection) -> None:
        """Count what a file holds."""
        for collection, namespace, name, size in connection.execute(DOCUMENTS):
            self._set_document((collection, namespace, name), size)
        for activation_id, owner, payload, event in connection.execute(QUEUED):
            self._add_queued(activation_id, owner, payload + (event or 0))
        for execution, owner, size in connection.execute(EXECUTIONS):
            self._add_queued(execution, owner, size)

    def set_limit(self, namespace: str, limit: int | None) -> None:
        """Set a namespace's own limit. None means the default."""
        if limit is None:
            self._limits.pop(namespace, None)
        else:
            self._limits[namespace] = limit

    def limit(self, namespace: str) -> int | None:
        return self._limits.get(namespace, self._default)

    def used(self, namespace: str) -> int:
        """Return the bytes of the namespace's entities and queued bodies."""
        return self._used.get(namespace, 0)

    # --- documents --------------------------------------------------------------------------------------

    def check(self, changes: Iterable[DocumentChange]) -> None:
        """Raise `QuotaError` if the changes let a namespace grow beyond its limit."""
        growth: dict[str, int] = {}
        for change in changes:
            key, size = _document_of(change)
            if key[0] not in EXEMPT:
                growth[key[1]] = growth.get(key[1], 0) + size - self._documents.get(key, 0)
        for namespace, more in growth.items():
            self._check_growth(namespace, more)

    def apply(self, changes: Iterable[DocumentChange]) -> None:
        """Count changes that were written."""
        for change in changes:
            self._set_document(*_document_of(change))

    def _set_document(self, key: DocumentKey, size: int) -> None:
        if key[0] in EXEMPT:
            return
        self._add(key[1], size - self._documents.get(key, 0))
        if size:
            self._documents[key] = size
        else:
            self._documents.pop(key, None)

    # --- the queue --------------------------------------------------------------------------------------

    def accept(self, accepted: Sequence[Accepted], event_bytes: int = 0) -> None:
        """Count invocations that are to be queued. Raises `QuotaError`, and counts none, if they do not fit."""
        total = event_bytes + sum(len(one.payload) for one in accepted)
        for owner in {one.owner for one in accepted}:  # all have the same
            self._check_growth(name_of_owner(owner), total)
        for one in accepted:
            self._add_queued(one.id, one.owner, len(one.payload) + event_bytes)
            event_bytes = 0

    def begin_execution(self, execution: str, owner: str, size: int, *, queued: bool) -> None:
        """Count an execution that is to be written. It may have been queued until now. Raises `QuotaError`."""
        if queued:
            self.finish(execution)
        else:
            self._check_growth(name_of_owner(owner), size)
        self._add_queued(execution, owner, size)

    def grow_execution(self, execution: str, owner: str, size: int) -> None:
        """Count what a step adds to the log of an open execution. It is not refused: what has begun goes on."""
        namespace, so_far = self._queued.pop(execution, (name_of_owner(owner), 0))
        self._queued[execution] = namespace, so_far + size
        self._add(namespace, size)

    def reason_full(self, owner: str, size: int) -> str | None:
        """Return why an open execution may not keep so many bytes more, or None if it may."""
        try:
            self._check_growth(name_of_owner(owner), size)
        except QuotaError as error:
            return str(error)
        return None

    def namespace_of(self, activation_id: str) -> str:
        """Return the namespace of a queued invocation, or an empty text."""
        return self._queued.get(activation_id, ("", 0))[0]

    def finish(self, activation_id: str) -> None:
        """Count an invocation that is no longer queued."""
        namespace, size = self._queued.pop(activation_id, ("", 0))
        self._add(namespace, -size)

    def _add_queued(self, activation_id: str, owner: str, size: int) -> None:
        if activation_id not in self._queued:
            namespace = name_of_owner(owner)
            self._queued[activation_id] = namespace, size
            self._add(namespace, size)

    def _add(self, namespace: str, size: int) -> None:
        used = self._used.get(namespace, 0) + size
        if used:
            self._used[namespace] = used
        else:
            self._used.pop(namespace, None)

    def _check_growth(self, namespace: str, more: int) -> None:
        limit, used = self.limit(namespace), self.used(namespace)
        if limit is not None and more > 0 and used + more > limit:
            raise QuotaError(
                f"The namespace keeps {_mib(used)} of at most {_mib(limit)} on disk in entities and queued calls: "
                f"{_mib(more)} more do not fit. Delete some, or ask the operator for a larger kept_bytes."
            )


def _document_of(change: DocumentChange) -> tuple[DocumentKey, int]:
    """Return a changed document and its new size, 0 if it is deleted."""
    if isinstance(change, Put):
        document = change.document
        return (change.collection, document.namespace, document.name), len(document.body)
    return (change.collection, change.namespace, change.name), 0


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
