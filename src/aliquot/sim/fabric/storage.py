"""What a simulation knows of storage: which files there are, how they come to the node, and how much of them stays."""

from pathlib import Path

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.prefetching.records import FileKey
from aliquot.core.units import MIB
from aliquot.sim.csv_input import read_rows


class StorageSettings(Struct, frozen=True):
    """Without files there is nothing to read, and nothing of it is looked at."""

    files: dict[FileKey, int] = {}  # and their sizes
    bandwidth_bytes_s: float = 100e6  # of the link to the origin
    latency_s: float = 0.002  # before the first byte of a file
    cache_bytes: int = 2**40
    eviction: str = "lru"  # of the cache
    predictor: str = "markov2"  # see `predicting.py`
    lead_s: float = 0  # how long before its first call a session is begun


def file_key(name: str) -> FileKey:
    """Of a file as people write it, `dataset/path`."""
    dataset, _, path = name.partition("/")
    return (dataset, path)


def read_files(path: Path) -> dict[FileKey, int]:
    """A files file: `dataset,path,mib`."""
    files: dict[FileKey, int] = {}
    for row in read_rows(path, ("dataset", "path", "mib"), ()):
        key = (row.text("dataset"), row.text("path"))
        if "/" in key[0] or ";" in key[0] + key[1]:
            raise row.error(f"'{key[0]}', '{key[1]}': the name of a dataset takes no /, and neither takes a ;")
        if key in files:
            raise row.error(f"{key[0]}/{key[1]} is there twice")
        files[key] = round(row.number("mib", "MiB, 0 or more") * MIB)
    if not files:
        raise InputError(f"{path}:2: there are no files; it takes one a line")
    return files
