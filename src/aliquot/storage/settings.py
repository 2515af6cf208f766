"""The settings of the storage agent, parsed once and frozen."""

from msgspec import Struct

from aliquot.core.units import GIB
from aliquot.learn.settings import LearnSettings


class FabricSettings(Struct, frozen=True):
    """The agent's directories, and the limits of its cache, learning and prefetching."""

    directory: str = ""  # for the access log and the models
    cache_directory: str = ""  # for the cached files
    cache_bytes: int = 10 * GIB
    eviction: str = "lecar"  # the cache's eviction policy; decision 0025 gives the reason
    learning: LearnSettings = LearnSettings()
    volumes_directory: str = ""  # for the files of volumes
    volumes_reserve_bytes: int = 0  # of the disk, which volumes leave free
    prefetch_bytes_per_s: int | None = None  # limit for prefetches; None: all spare bandwidth
