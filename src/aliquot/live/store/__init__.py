"""The durable store: documents, activations, the queue of accepted invocations and the journal."""

from aliquot.live.store.base import (
    ActivationQuery,
    Delete,
    Document,
    JournalEntry,
    Put,
    Retention,
    Store,
    StoreError,
)
from aliquot.live.store.journal import read_journal
from aliquot.live.store.sqlite import SqliteStore

__all__ = [
    "ActivationQuery",
    "Delete",
    "Document",
    "JournalEntry",
    "Put",
    "Retention",
    "SqliteStore",
    "Store",
    "StoreError",
    "read_journal",
]
