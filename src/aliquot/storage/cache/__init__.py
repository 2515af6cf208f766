"""The node cache: files of datasets on local disk, whole and verified, within bounded bytes."""

from aliquot.storage.cache.base import Cache, CacheSettings, CacheStats, Fetched, Opened, Ticket, Urgency, Warmed
from aliquot.storage.cache.listing import Listing
from aliquot.storage.cache.node import NodeCache

__all__ = [
    "Cache",
    "CacheSettings",
    "CacheStats",
    "Fetched",
    "Listing",
    "NodeCache",
    "Opened",
    "Ticket",
    "Urgency",
    "Warmed",
]
