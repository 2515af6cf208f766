"""Storage settings of a simulation: files, link, cache and predictor."""

from pathlib import Path

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.prefetching.records import FileKey
from aliquot.core.units import MIB
from aliquot.sim.input_files import read_rows


class StorageSettings(Struct, frozen=True):
    """The storage of a simulation. Without files the other settings have no effect."""

    files: dict[FileKey, int] = {}  # sizes in bytes
    bandwidth_bytes_s: float = 100e6  # bandwidth of the link to the origin
    latency_s: float = 0.002  # time before the first byte of a file
    cache_bytes: int = 2**40
    eviction: str = "lru"  # eviction policy of the cache
    predictor: str = "markov2"  # see `predictors.py`
    lead_s: float = 0  # time between the start of a session and its first call


def file_key(name: str) -> FileKey:
    """Parse a file name of the form `dataset/path`."""
    dataset, _, path = name.partition("/")
    return (dataset, path)


def read_files(path: Path) -> dict[FileKey, int]:
    """Read a files file: `dataset,path,mib`."""
    files: dict[FileKey, int] = {}
    for row in read_rows(path, ("dataset", "path", "mib"), ()):
        key = (row.text("dataset"), row.text("path"))
        if "/" in key[0] or ";" in key[0] + key[1]:
            takes = "it takes a dataset without / and ;, and a path without ;"
            raise row.error(f"'{key[0]}', '{key[1]}' are not accepted names; {takes}")
        if key in files:
            raise row.error(f"{key[0]}/{key[1]} is listed twice")
        files[key] = round(row.number("mib", "MiB, 0 or more") * MIB)
    if not files:
        raise InputError(f"{path}:2: there are no files; it takes one a line")
    return files
