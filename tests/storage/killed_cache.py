"""A process with a cache that fetches files until it is killed by the test that runs it."""

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
        futures = [cache.open(FileKey("d", chance.choice(names))) for _ in range(4)]
        for future in futures:
            with future.result() as handle:
                handle.read(chance.randrange(handle.listed.size), 100_000).result()
        print("fetched", flush=True)  # noqa: T201


main()
