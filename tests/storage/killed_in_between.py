"""A process with a cache that kills itself in the middle of a change on disk: run by the tests of crashes.

Arguments: the origin's directory, the cache's directory, a method of the cache's disk, and the number of the call of
that method during which the process is killed before anything of the call is done.
"""

import os
import signal
import sys
from pathlib import Path

from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.cache.disk.files import CacheFile
from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset, FileKey

METHODS = {"remove": (CacheFile, "remove"), "move": (CacheFile, "move"), "rename": (Path, "rename")}


def kill_in(method, number):
    owner, name = METHODS[method]
    plain, calls = getattr(owner, name), iter(range(1, 1_000_000))

    def called(*args, **kwargs):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*args, **kwargs)

    setattr(owner, name, called)


def main():
    source, directory, method, number = sys.argv[1:]
    origin = origin_for(Dataset("d", source))
    settings = CacheSettings(limit_bytes=6_000_000, chunk_bytes=65_536, revalidate_s=60)
    cache = NodeCache(Path(directory), settings, lambda _: origin)
    if method != "remove":
        kill_in(method, int(number))
    for file in sorted(origin.files(), key=lambda file: file.path):
        cache.fetch(FileKey("d", file.path)).result()
    if method == "remove":
        kill_in(method, int(number))
        cache.remove("d")
    cache.close()  # which replaces the index


main()
