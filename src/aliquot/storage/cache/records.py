"""Plain data of the node cache: its settings, the urgency of a request, results and statistics."""

from enum import IntEnum

from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.storage.records import Found, Listed


class Urgency(IntEnum):
    """The order in which requests use a link, chunk by chunk. No other chunk starts on a link with demand."""

    DEMAND = 0  # a reader waits for the file
    WARM = 1  # a user requested the file ahead of its use
    PREFETCH = 2  # the file was predicted; its transfer stays within the bandwidth budget


class CacheSettings(Struct, frozen=True):
    """The limits and timeouts of a node's cache."""

    limit_bytes: int
    eviction: str = "lecar"
    chunk_bytes: int = 4 * MIB
    whole_bytes: int = 64 * MIB  # a larger file is opened at once and read as it arrives
    workers: int = 8  # chunks transferred at once; at most half of them for files that no reader waits for
    prefetch_bytes_per_s: int | None = None  # None: unlimited; 0: no prefetches
    revalidate_s: float = 5.0  # minimum time between two checks of a cached file with its origin
    relist_s: float = 60.0  # minimum time between two listings of a dataset
    patience_s: float = 2.0  # a cached file is served unchecked if its origin has not answered by then
    stall_s: float = 60.0  # a transfer fails if its origin has sent nothing for this long


class FetchResult(Struct, frozen=True):
    """A file that is in the cache, whole and verified."""

    listed: Listed
    found: Found
    seconds: float  # since it was requested


class WarmOutcome(Struct, frozen=True):
    """The outcome of warming a dataset."""

    files: int
    bytes: int
    failed: int = 0
    error: str = ""  # message of the first failure


class DatasetStats(Struct):
    """Counters of one dataset in the cache."""

    files: int = 0  # whole files in the cache
    bytes: int = 0  # on this node's disk
    hits: int = 0  # opens that found the file cached, or being transferred because it was predicted
    misses: int = 0
    fetched_bytes: int = 0
    prefetched_bytes: int = 0  # part of fetched_bytes: transferred for predictions
    evicted: int = 0
    evicted_bytes: int = 0
    in_flight: int = 0
    unchecked: int = 0  # opens served without checking with the origin whether the file has changed
    refetched: int = 0  # files fetched again because they had changed at the origin


class CacheStats(Struct):
    """The cache's current use and the counters of its datasets."""

    limit_bytes: int
    used_bytes: int  # on disk, or reserved for running transfers
    open: int  # handles
    in_flight: int  # files
    datasets: dict[str, DatasetStats]
