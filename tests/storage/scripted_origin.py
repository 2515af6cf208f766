"""An origin in memory that is controlled by the test, and a cache of small chunks in front of it."""

import hashlib
import inspect
import os
import random
import threading
import time
from contextlib import contextmanager

from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.errors import AbsentError, ChangedError, OriginError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import FileKey, Listed
from aliquot.testing.waiting import wait_until

CHUNK = 1000
SOON_S = 20


class ScriptedOrigin(Origin):
    def __init__(self, files, *, link="scripted"):
        super().__init__(f"memory://{link}", {})
        self.contents = dict(files)
        self.checksums = {}
        self.begun = []  # reads: path and offset
        self.ended = []
        self.stats = []
        self.listings = 0
        self.confirmed = 0
        self.down = False
        self.is_ranged = True
        self.before_read = lambda _path, _offset: None
        self.before_piece = lambda _offset: None
        self.before_stat = lambda _path: None
        self._link = link

    link = property(lambda self: self._link)

    def check(self):
        pass

    def files(self):
        self.listings += 1
        self._up()
        for path, content in dict(self.contents).items():  # a copy, because another thread may write
            yield self._listed_as(path, content)

    def _listed(self, path):
        return self._listed_as(path, self.contents[path])

    def _listed_as(self, path, content):
        version = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return Listed(path, len(content), version, self.checksums.get(path, ""))

    def stat(self, path):
        self.stats.append(path)
        self.before_stat(path)
        self._up()
        if path not in self.contents:
            raise AbsentError(f"no {path}")
        return self._listed(path)

    def ranged(self, listed):
        return self.is_ranged

    def pieces(self, listed, offset, length):
        self.begun.append((listed.path, offset))
        self.before_read(listed.path, offset)
        self._up()
        if listed.path not in self.contents:
            raise AbsentError(f"no {listed.path}")
        if self._listed(listed.path) != listed:
            raise ChangedError(f"{listed.path} has changed")
        self.ended.append((listed.path, offset))
        content = self.contents[listed.path][offset : offset + length]
        for start in range(0, len(content), 300):
            self.before_piece(offset + start)
            yield memoryview(content[start : start + 300])

    def confirm(self, listed):
        self.confirmed += 1
        self._up()
        if self._listed(listed.path) != listed:
            raise ChangedError(f"{listed.path} has changed")

    def copy(self, listed, target, go):
        with target.open("xb") as file:
            for offset in range(0, listed.size, CHUNK):
                while not go(offset):
                    time.sleep(0.001)
                file.write(self.read(listed, offset, CHUNK))

    def _up(self):
        if self.down:
            raise OriginError("scripted: is down")


def held(origin):
    """Let reads wait until the test releases them, one by one."""
    turnstile = threading.Semaphore(0)
    origin.before_read = lambda *_: turnstile.acquire(timeout=SOON_S)
    return turnstile


def until(condition):
    """Wait for something that another thread or process does. The error shows the condition's source."""
    what = inspect.getsource(condition).strip() if condition.__name__ == "<lambda>" else repr(condition)
    wait_until(condition, what=what, pause_s=0.001)


def key(path, dataset="d"):
    return FileKey(dataset, path)


def content(seed, size=300_000):
    return random.Random(seed).randbytes(size)


def served(cache, path):
    with cache.open(key(path)).result(SOON_S) as handle:
        return handle.read(0, handle.listed.size).result(SOON_S)


@contextmanager
def cache_before(directory, origins, **settings):
    """Run a cache, and check at the end that it leaves no thread and no arriving file."""
    threads = set(threading.enumerate())
    origin_of = origins.__getitem__ if isinstance(origins, dict) else lambda _: origins
    defaults = {"limit_bytes": 1_000_000, "chunk_bytes": CHUNK, "whole_bytes": 100_000, "revalidate_s": 0.0}
    cache = NodeCache(directory, CacheSettings(**{**defaults, **settings}), origin_of)
    try:
        yield cache
    finally:
        cache.close()
    left = [
        thread
        for thread in set(threading.enumerate()) - threads
        if thread.name.startswith(("cache", "renew", "warming"))
    ]
    for thread in left:  # the cache does not wait for abandoned workers
        thread.join(SOON_S)
    assert not [thread for thread in left if thread.is_alive()]
    arriving = directory / "arriving"
    assert not arriving.exists() or not list(arriving.iterdir())


def small_content(seed, size=10_500):
    return random.Random(seed).randbytes(size)


def all_of(handle):
    return os.pread(handle.fd, handle.listed.size + 1, 0)


def opened(cache, path, dataset="d"):
    with cache.open(key(path, dataset)).result(SOON_S) as handle:
        return handle.found, handle.read(0, handle.listed.size).result(SOON_S)
