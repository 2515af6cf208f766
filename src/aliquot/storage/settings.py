"""How the storage agent is to work, parsed once and frozen."""

from msgspec import Struct

from aliquot.core.units import GIB
from aliquot.learn.settings import LearnSettings


class FabricSettings(Struct, frozen=True):
    directory: str = ""  # for the access log and the models
    cache_directory: str = ""  # for the files
    cache_bytes: int = 10 * GIB
    eviction: str = "lecar"  # of the cache; docs/decisions/0025 says why
    learning: LearnSettings = LearnSettings()
    prefetch_bytes_per_s: int | None = None  # what prefetches may take of the link; None: all that nobody else wants
