"""A driver of the node cache's transfer machine."""

from typing import NamedTuple

from aliquot.storage.cache.records import CacheSettings, Urgency
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.machine import TransferMachine
from aliquot.storage.cache.transfers.transfer import FileRequest, ReadRequest, StepKind
from aliquot.storage.records import FileKey, Listed

CHUNK = 100


class StubOrigin(NamedTuple):
    identity: str = "origin"
    link: str = "link"


ORIGIN = StubOrigin()


def key(path):
    return FileKey("d", path)


class Driver:
    """Sends events to a machine and performs its steps as a worker would, at times that the test sets."""

    def __init__(self, **settings):
        defaults = {"limit_bytes": 1000, "chunk_bytes": CHUNK, "whole_bytes": 500, "workers": 4, "eviction": "lru"}
        self.machine = TransferMachine(CacheSettings(**{**defaults, **settings}), now=0.0)
        self.now = 0.0

    def request(self, path, *, urgency=Urgency.DEMAND, opens=True, origin=ORIGIN):
        request = FileRequest(key(path), origin, urgency, opens=opens, now=self.now)
        self.machine.request(request, now=self.now)
        return request

    def read(self, entry, offset, length, *, is_sequential=False):
        request = ReadRequest(entry.key, ORIGIN, offset, length)
        self.machine.read(entry, request, is_sequential=is_sequential, now=self.now)
        return request

    def decisions(self):
        return self.machine.take_decisions()

    def step(self, kind=None):
        step = self.machine.next_step(now=self.now)
        assert kind is None or (step is not None and step.kind is kind), step
        return step

    def answer(self, step, size, version="1", *, ranged=True, is_asked=True):
        """Let the origin name the version of the step's file."""
        transfer = step.transfer
        listed = Listed(transfer.key.path, size, version)
        entry = self.machine.usable_entry(transfer, listed, ranged=ranged)
        if entry is None:
            entry = CacheEntry(transfer.key, listed, transfer.origin.identity, None, CHUNK)
        self.machine.version_known(step, entry, is_asked=is_asked, ranged=ranged, now=self.now)
        return entry

    def fetch(self, step, *, is_confirmed=True):
        assert self.machine.reserve_chunk(step, can_free=True, now=self.now) is True
        self.arrive(step, is_confirmed=is_confirmed)

    def arrive(self, step, *, is_confirmed=True):
        self.machine.chunk_arrived(step, b"crc!", is_hole=False, is_confirmed=is_confirmed, now=self.now)
        self.machine.step_ended(step, now=self.now)

    def fail(self, step, error):
        self.machine.step_failed(step, error, now=self.now)
        self.machine.step_ended(step, now=self.now)

    def finish(self):
        """Perform all steps of small files until none is left."""
        while (step := self.step()) is not None:
            if step.kind is StepKind.ASK:
                self.answer(step, 3 * CHUNK)
            elif step.kind is StepKind.CHUNK:
                self.fetch(step)
            else:
                self.machine.committed(step, now=self.now)
            self.machine.step_ended(step, now=self.now)

    def cached(self, path):
        """Bring a file of three chunks into the cache, and close it again."""
        self.request(path)
        self.finish()
        (handed,) = self.decisions()
        self.machine.handed_over(handed, now=self.now)
        self.machine.handle_closed(handed.entry, now=self.now)
        return handed.entry

    def opened(self, size, path="a"):
        """Open a file that is read in parts, of which nothing is here yet."""
        self.request(path)
        entry = self.answer(self.step(StepKind.ASK), size)
        (handed,) = self.decisions()
        self.machine.handed_over(handed, now=self.now)
        return entry
