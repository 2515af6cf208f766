"""A process with a cache that brings files until it is killed: run by the test of `kill -9`."""

import random
import sys
from pathlib import Path

from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset, FileKey


def main():
    source, directory, seed = sys.argv[1:]
    origin = origin_for(Dataset("d", source))
    settings = CacheSettings(limit_bytes=6_000_000, chunk_bytes=65_536, whole_bytes=400_000, revalidate_s=0.0)
    cache = NodeCache(Path(directory), settings, lambda _: origin)
    chance = random.Random(seed)
    names = sorted(file.path for file in origin.files())
    print("ready", flush=True)  # noqa: T201
    while True:
        tickets = [cache.open(FileKey("d", chance.choice(names))) for _ in range(4)]
        for ticket in tickets:
            with ticket.result() as handle:
                handle.read(chance.randrange(handle.listed.size), 100_000).result()


main()
