"""What follows when a step fails: try again, begin again, give way, or tell whoever waits."""

import errno

from aliquot.storage.cache.flights import Flights
from aliquot.storage.cache.listings import Listings
from aliquot.storage.cache.transfer import Kind, Step, Transfer
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError, RoomError, StorageError

FULL = (errno.ENOSPC, errno.EDQUOT)


class Troubles:
    """Called with the lock held."""

    def __init__(self, flights: Flights, listings: Listings) -> None:
        self._flights = flights
        self._listings = listings

    def handle(self, step: Step, error: Exception, now: float) -> None:
        flights, transfer = self._flights, step.transfer
        match error:
            case ChangedError():
                self._listings.forget(transfer.key)
                flights.changed(transfer, now=now)
            case AbsentError():
                self._gone(transfer, error, now)
            case PathError() | RoomError():
                flights.fail(transfer, error, now=now)
            case StorageError() if step.kind is Kind.COMMIT:  # not what its origin says it is
                self._listings.forget(transfer.key)
                self._spoiled(transfer, error, now)
            case StorageError():
                if not (step.kind is Kind.ASK and flights.unchecked(transfer, now=now)):
                    flights.failed_once(transfer, step.chunk, error, now=now)
            case OSError() if error.errno in FULL:
                self._full(step, error, now)
            case OSError() if error.errno == errno.ENOENT:  # the directory was wiped
                self._spoiled(transfer, StorageError(f"{transfer.key}: the cache's directory: {error}"), now)
            case _:
                told = StorageError(f"{transfer.key}: {type(error).__name__}: {error}")
                told.__cause__ = error
                flights.fail(transfer, told, now=now)

    def _gone(self, transfer: Transfer, error: Exception, now: float) -> None:
        entry = self._flights.shelf.entries.get(transfer.key)
        if entry is not None and entry is not transfer.entry:
            self._flights.shelf.drop(entry, now=now)
        self._flights.fail(transfer, error, now=now)

    def _spoiled(self, transfer: Transfer, error: StorageError, now: float) -> None:
        """Once more from the beginning, then no more."""
        transfer.spoiled += 1
        self._flights.again(transfer, now=now)
        if transfer.spoiled > 1:
            self._flights.fail(transfer, error, now=now)

    def _full(self, step: Step, error: OSError, now: float) -> None:
        """The disk is full, by others perhaps: the cache gives way until there is room, or nothing of it may go."""
        flights, transfer = self._flights, step.transfer
        if flights.rooms.evict_for(transfer, now=now):
            transfer.failures = max(transfer.failures - 1, 0)
            flights.failed_once(transfer, step.chunk, OriginError(""), now=now)
            transfer.not_before_s = now
            return
        text = f"{transfer.key}: the cache's disk is full, and nothing in the cache may go: {error.strerror}"
        flights.fail(transfer, RoomError(text), now=now)
