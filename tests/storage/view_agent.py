"""Serve a view until killed: `python view_agent.py DEVICE BASE [pieces]`. Files named `held…` wait for BASE/go.

With `pieces` passthrough is off, and every read is a request.
"""

import signal
import sys
from pathlib import Path

from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.view.views import ViewServer
from aliquot.testing.waiting import wait_until


class Waiting(LocalOrigin):
    def __init__(self, base: Path) -> None:
        super().__init__(str(base / "origin"), {})
        self._base = base

    def pieces(self, listed, offset, length):
        if listed.path.startswith("held"):
            (self._base / "asked").touch()
            wait_until((self._base / "go").exists, what="the test's sign to go on")
        return super().pieces(listed, offset, length)


def main() -> None:
    base = Path(sys.argv[2])
    origin = Waiting(base)
    cache = NodeCache(base / "cache", CacheSettings(limit_bytes=2**28), lambda _: origin)
    views = ViewServer(cache, lambda _: None, passthrough="pieces" not in sys.argv)
    views.open(1, int(sys.argv[1]), ["data"])
    signal.pause()


if __name__ == "__main__":
    main()
