"""The node cache: files of datasets on local disk, whole and verified, within bounded bytes."""

from aliquot.storage.cache.base import (
    Cache,
    CacheSettings,
    CacheStats,
    DatasetStats,
    FetchResult,
    FileHandle,
    TransferFuture,
    Urgency,
    WarmResult,
)
from aliquot.storage.cache.listing import Listing
from aliquot.storage.cache.node import NodeCache

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
    "WarmResult",
]
