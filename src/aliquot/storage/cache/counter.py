"""Where tickets and handles are given out and taken back, under the one lock of the cache."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aliquot.storage.cache.agenda import Agenda
from aliquot.storage.cache.base import CacheSettings, FetchResult, TransferFuture, Urgency
from aliquot.storage.cache.body import Body
from aliquot.storage.cache.budget import Budget
from aliquot.storage.cache.crew import Crew
from aliquot.storage.cache.disk import Disk
from aliquot.storage.cache.entry import Entry
from aliquot.storage.cache.flights import Flights
from aliquot.storage.cache.listings import Listings
from aliquot.storage.cache.opened import Handle
from aliquot.storage.cache.rooms import AHEAD
from aliquot.storage.cache.shelf import Shelf
from aliquot.storage.cache.steps import Steps
from aliquot.storage.cache.ticket import Claim, refused
from aliquot.storage.cache.transfer import Kind, Reader, Step, Transfer, Waiter
from aliquot.storage.errors import OriginError, RefusedError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import Found

SILENCE_S = 10.0  # an origin that could not be asked is not asked again about cached files for so long
T = TypeVar("T")


class Counter:
    def __init__(self, directory: Path, settings: CacheSettings) -> None:
        self.settings = settings
        self.lock = threading.Lock()
        self.closed = False
        self.open = 0  # handles
        self.disk = Disk(directory)
        self.shelf = Shelf(settings.limit_bytes, settings.eviction)
        self.listings = Listings(directory / "listings", settings.revalidate_s, settings.relist_s, settings.stall_s)
        self.flights = Flights(settings, self.shelf, self.disk, self._hand_over)
        self.agenda = Agenda(settings.workers, Budget(settings.prefetch_bytes_per_s, now=time.monotonic()))
        self.steps = Steps(self.flights, self.disk, self.listings, self.deciding_at_work, self)
        look_every_s = min(max(min(settings.patience_s, settings.stall_s) / 4, 0.02), 1.0)
        self.crew = Crew(settings.workers, self.lock, self, look_every_s)
        self._silent: dict[str, float] = {}  # links, and until when they are left alone
        self._returned: deque[Entry] = (
            deque()
        )  # whose handle is closed, by the collector too: it must not wait for the lock

    @contextmanager
    def deciding(self) -> Iterator[float]:
        """With the lock, at this moment; there may be work from then on."""
        with self.deciding_at_work() as now:
            try:
                yield now
            finally:
                if self.flights.transfers:
                    self.crew.call()

    @contextmanager
    def deciding_at_work(self) -> Iterator[float]:
        """The same where nobody needs to be called: a worker takes up by itself what is to be done next.

        What others are to be told is told when the lock is free again.
        """
        due: list[Callable[[], object]] = []
        unwanted: list[Body] = []
        try:
            with self.lock:
                now = time.monotonic()
                self._take_back(now)
                try:
                    yield now
                finally:
                    due, self.flights.due = self.flights.due, []
                    unwanted, self.shelf.unwanted = self.shelf.unwanted, []
        finally:
            for body in unwanted:
                with suppress(OSError):  # a disk in trouble must not keep anybody from being told
                    body.remove()
            for tell in due:
                tell()

    def enter(self, claim: Claim[T], origin: Origin, *, opens: bool) -> TransferFuture[T]:
        """One who wants a file: it is given at once if it is here and known to be the origin's, or soon."""
        key = claim.key
        waiter = Waiter(claim, opens, time.monotonic(), origin)
        with self.deciding() as now:
            if self.closed or key is None:
                self.flights.due.append(partial(claim.fail, RefusedError("the cache is closed")))
                return claim
            entry = self.shelf.entries.get(key)
            if entry is not None and key not in self.flights.transfers and self._is_good(entry, origin, now):
                if self._hand_over(waiter, entry, False, now):
                    return claim
                self.shelf.drop(entry, now=now)
            self.flights.join(key, origin, waiter, now=now)
        return claim

    def left(self, claim: Claim[Any]) -> None:
        with self.deciding() as now:
            transfer = self.flights.transfers.get(claim.key) if claim.key is not None else None
            if transfer is not None:
                self.flights.leave(transfer, claim, now=now)

    def promoted(self, _: Claim[Any]) -> None:
        with self.deciding():  # the claim's urgency is what counts; whoever looks for work looks again
            pass

    def give_back(self, entry: Entry) -> None:
        """A handle on it is closed; counted at the next decision. Waits for no lock."""
        self._returned.append(entry)

    def settle(self) -> None:
        with self.deciding():
            pass

    def read(self, handle: Handle, offset: int, length: int) -> TransferFuture[bytes]:
        entry, origin = handle.entry, handle.origin
        if offset < 0 or length < 0:
            return refused(ValueError(f"{entry.key}: offset and length are 0 or more"))
        reader = Reader(Claim(Urgency.DEMAND, entry.key, self.left, self.promoted), offset, length)
        with self.deciding() as now:
            ahead = AHEAD if offset == handle.next_offset else 0
            handle.next_offset = offset + length
            here, punched = entry.has(offset, length), entry.punched
            if not here:
                self.flights.read(entry, origin, reader, ahead, now=now)
        if here:
            self.steps.serve(entry, origin, reader, punched)
        return reader.claim

    def pick(self, now: float) -> Step | None:
        """The next step, which is under way from now on. With the lock."""
        step = self.agenda.next_step(self.flights.transfers.values(), now=now)
        if step is not None:
            step.transfer.begin(step)
        return step

    def has_more(self, now: float) -> bool:
        step = self.agenda.peek(self.flights.transfers.values(), now=now)
        return step is not None or self.agenda.wake_s is not None

    def wake_s(self) -> float | None:
        return self.agenda.wake_s

    def perform(self, step: Step) -> None:
        self.steps.perform(step)

    def came_on(self) -> None:
        self.crew.came_on()

    def heard(self, link: str) -> None:
        self.crew.came_on(link)

    def call(self) -> None:
        self.crew.call()

    def comes_on(self, step: Step) -> None:
        with self.deciding():
            step.transfer.comes_on(step)

    def is_hung(self, link: str) -> bool:
        with self.lock:
            return self.crew.is_hung(link, self.settings.stall_s, now=time.monotonic())

    def is_overdue(self, step: Step, silent_s: float) -> bool:
        """Whether its worker is to be left to itself; then, whoever waits has been told."""
        transfer = step.transfer
        with self.deciding() as now:
            if step.attempt != transfer.attempt:
                return silent_s > self.settings.stall_s
            if step.kind is Kind.ASK and silent_s > self.settings.patience_s:
                self._silent[transfer.link] = now + SILENCE_S
                if self.flights.unchecked(transfer, now=now):
                    return True
            if silent_s < self.settings.stall_s:
                return False
            transfer.attempt += 1  # nobody may wait for a worker that may never come back
            error = OriginError(f"{transfer.key}: its origin has said nothing for {self.settings.stall_s:g} s")
            self.flights.fail(transfer, error, now=now)
            return True

    def goes_on(self, transfer: Transfer, moved: int) -> bool:
        with self.lock:
            now = time.monotonic()
            goes_on = self.agenda.may_go_on(transfer, self.flights.transfers.values(), moved, now=now)
        if moved:
            self.heard(transfer.link)
        elif not goes_on:  # who is told to wait is not to blame for saying nothing
            self.came_on()
        return goes_on

    def _is_good(self, entry: Entry, origin: Origin, now: float) -> bool:
        """Whether it may be given without asking the origin."""
        if not (entry.whole and entry.trusted and entry.origin == origin.identity):
            return False
        if now - entry.checked_s <= self.settings.revalidate_s:
            return True
        silent = now < self._silent.get(origin.link, 0.0)
        self.shelf.of(entry.key.dataset).unchecked += silent
        return silent

    def _hand_over(self, waiter: Waiter, entry: Entry, brought: bool, now: float) -> bool:
        """Give a waiter what it waits for; False when the entry's file is not there."""
        found = Found.PREFETCHED if entry.predicted else Found.FETCHED if brought else Found.CACHED
        waited_s = now - waiter.since_s
        if not waiter.opens:
            if entry.body.is_there():
                self.flights.due.append(partial(waiter.claim.deliver, FetchResult(entry.listed, found, waited_s)))
                return True
            return False
        try:
            fd = entry.body.acquire(entry.listed.size)
        except OSError:
            return False
        self.shelf.pin(entry)
        self.open += 1
        entry.used(now)
        entry.predicted = False
        stats = self.shelf.of(entry.key.dataset)
        stats.hits += found is not Found.FETCHED
        stats.misses += found is Found.FETCHED
        handle = Handle(entry, waiter.origin, fd, found, waited_s, self)
        self.flights.due.append(partial(_deliver, waiter.claim, handle))
        return True

    def _take_back(self, now: float) -> None:
        while self._returned:
            entry = self._returned.popleft()
            entry.body.release()
            self.open -= 1
            self.shelf.unpin(entry, now=now)
            transfer = self.flights.transfers.get(entry.key)
            if transfer is not None and transfer.entry is entry and not entry.pins and not transfer.whole:
                transfer.wanted.clear()  # nobody reads on
                self.flights.let_go(transfer, now=now)


def _deliver(claim: Claim[Handle], handle: Handle) -> None:
    if not claim.deliver(handle):
        handle.close()
