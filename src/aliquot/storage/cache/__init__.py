"""The node cache: files of datasets on local disk, whole and verified, within bounded bytes.

Five layers. Each imports only from those below it:

    node, requests, …   the facade for callers, and its lock
    workers/            the threads that perform transfers
    listings/  disk/    the known listings of datasets; files, chunks and index on disk
    transfers/          the pure state machine that decides everything
    records             plain data
"""

from aliquot.storage.cache.base import Cache, FileHandle
from aliquot.storage.cache.futures import TransferFuture
from aliquot.storage.cache.listings.listing import Listing
from aliquot.storage.cache.node import NodeCache
from aliquot.storage.cache.records import (
    CacheSettings,
    CacheStats,
    DatasetStats,
    FetchResult,
    Urgency,
    WarmOutcome,
)

__all__ = [
    "Cache",
    "CacheSettings",
    "CacheStats",
    "DatasetStats",
    "FetchResult",
    "FileHandle",
    "Listing",
    "NodeCache",
    "TransferFuture",
    "Urgency",
    "WarmOutcome",
]
