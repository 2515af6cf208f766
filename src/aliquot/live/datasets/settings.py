"""Parse the storage fabric's options of `aliquot up`."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from aliquot.assemble import look_up
from aliquot.config import make_params, parse_assignments, parse_size
from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.learn.settings import AUTO, PREDICTORS, LearnSettings
from aliquot.live.store.disk_reserve import DiskReserve
from aliquot.policies.eviction import EVICTION
from aliquot.storage.settings import FabricSettings

FABRIC_DIRECTORY = "fabric"  # the agent's directory in the data directory
VOLUMES_DIRECTORY = "volumes"  # the files of volumes, in the data directory
MIN_CACHE_BYTES = MIB
_DISK_FRACTION = 10  # the cache uses a tenth of the free disk by default


def read_fabric(
    data: Path,
    cache_size: str | None,
    cache_dir: Path | None,
    bandwidth: str | None,
    eviction: str,
    learning: Sequence[str] = (),
) -> FabricSettings:
    """Return the settings. Raises an `InputError` that names the option and what it takes."""
    directory = data.absolute() / FABRIC_DIRECTORY
    cache = cache_dir.expanduser().absolute() if cache_dir is not None else directory / "cache"
    size = parse_size(cache_size, "--cache-size") if cache_size is not None else _default_cache_bytes(cache)
    if size < MIN_CACHE_BYTES:
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
        volumes_directory=str(data.absolute() / VOLUMES_DIRECTORY),
        eviction=eviction,
        learning=_read_learning(learning),
        prefetch_bytes_per_s=None if bandwidth is None else parse_size(bandwidth, "--prefetch-bandwidth"),
    )


def with_reserve(settings: FabricSettings, data: Path, reserve_bytes: int | None) -> FabricSettings:
    """Return the settings with the store's reserve of the disk, which volumes leave alone."""
    return replace(settings, volumes_reserve_bytes=DiskReserve(data, reserve_bytes).reserve_bytes)


def _read_learning(texts: Sequence[str]) -> LearnSettings:
    key = "--learning"
    settings = make_params(LearnSettings, key, parse_assignments(list(texts), key))
    if settings.predictor not in {AUTO, *PREDICTORS}:
        known = ", ".join((AUTO, *PREDICTORS))
        raise InputError(f"{key}.predictor: there is no '{settings.predictor}'; it takes {known}")
    for name, minimum in (("least_sessions", 2), ("keep_versions", 1), ("threads", 1), ("epochs", 1)):
        if getattr(settings, name) < minimum:
            raise InputError(f"{key}.{name}: it takes {minimum} or more")
    if settings.look_every_s <= 0:
        raise InputError(f"{key}.look_every_s: it takes more than 0")
    return settings


def _default_cache_bytes(cache: Path) -> int:
    there = next(place for place in (cache, *cache.parents) if place.exists())
    if not os.access(there, os.W_OK):
        return MIN_CACHE_BYTES  # the server reports later that the directory cannot be used
    return max(MIN_CACHE_BYTES, shutil.disk_usage(there).free // _DISK_FRACTION)
