"""The decisions of the transfer machine, to be performed by its caller."""

from typing import NamedTuple, TypeAlias

from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.transfer import FileRequest, ReadRequest
from aliquot.storage.records import Found


class HandOver(NamedTuple):
    """Give the entry to a request, as a handle or as a result.

    To be performed before the lock is released. Report the outcome to the machine by `handed_over` or `file_lost`.
    """

    request: FileRequest
    entry: CacheEntry
    found: Found
    waited_s: float


class ServeRead(NamedTuple):
    """Read the requested bytes. All of them are on disk."""

    request: ReadRequest
    entry: CacheEntry
    freed_count: int  # of the entry, when its bytes were known to be on disk


class FailRequest(NamedTuple):
    """Report an error to a caller."""

    request: FileRequest | ReadRequest
    error: Exception


class RemoveFile(NamedTuple):
    """Remove the file of an entry that has left the cache."""

    entry: CacheEntry


Decision: TypeAlias = HandOver | ServeRead | FailRequest | RemoveFile


class FreeChunk(NamedTuple):
    """An answer to a worker that needs space: free this chunk's blocks, report `chunk_freed` and ask again."""

    entry: CacheEntry
    chunk: int
