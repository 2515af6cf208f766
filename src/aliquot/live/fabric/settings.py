"""What `aliquot up` says of the storage fabric, read into settings."""

import os
import shutil
from pathlib import Path

from aliquot.assemble import look_up
from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.policies.eviction import EVICTION
from aliquot.storage.settings import FabricSettings

FABRIC = "fabric"  # the directory of the agent's in the data directory
LEAST_CACHE = 2**20
_PART = 10  # of the free disk, unless it was said otherwise


def read_fabric(
    data: Path, cache_size: str | None, cache_dir: Path | None, bandwidth: str | None, eviction: str
) -> FabricSettings:
    """Raises an `InputError` that names the option and what it takes."""
    directory = data.absolute() / FABRIC
    cache = cache_dir.expanduser().absolute() if cache_dir is not None else directory / "cache"
    size = parse_size(cache_size, "--cache-size") if cache_size is not None else _usual_size(cache)
    if size < LEAST_CACHE:
        raise InputError(f"--cache-size: it takes at least 1MiB, not {size} bytes")
    if cache_dir is not None:
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--cache-dir: {cache} cannot be used: {error.strerror}") from error
    look_up(EVICTION, eviction, "--cache-eviction")
    return FabricSettings(
        directory=str(directory),
        cache_directory=str(cache),
        cache_bytes=size,
        eviction=eviction,
        prefetch_bytes_per_s=None if bandwidth is None else parse_size(bandwidth, "--prefetch-bandwidth"),
    )


def _usual_size(cache: Path) -> int:
    there = next(place for place in (cache, *cache.parents) if place.exists())
    if not os.access(there, os.W_OK):
        return LEAST_CACHE  # the server will say that it cannot be used
    return max(LEAST_CACHE, shutil.disk_usage(there).free // _PART)
