"""A program that serves one view as the storage agent does: `python view_agent.py DEVICE FOLDER passed|pieces`.

FOLDER/origin is the origin of the dataset `data`. The program prints a line when all its files are in the cache.
"""

import signal
import sys
from pathlib import Path

from aliquot.core.units import GIB
from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.view.views import ViewServer

CACHE_BYTES = 8 * GIB


def main() -> None:
    device, folder, way = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    origin = LocalOrigin(str(folder / "origin"), {})
    cache = NodeCache(folder / f"cache-{way}", CacheSettings(CACHE_BYTES, revalidate_s=3600), lambda _: origin)
    cache.warm("data").result()
    views = ViewServer(cache, lambda _: None, passthrough=way == "passed")
    views.open(1, device, ["data"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
