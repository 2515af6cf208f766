"""Advance a transfer after every event: serve the ready requests, and choose the chunks to fetch for the others."""

from aliquot.storage.cache.transfers.decisions import HandOver
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.reservations import SpaceReservations
from aliquot.storage.cache.transfers.space import CacheSpace
from aliquot.storage.cache.transfers.table import TransferTable
from aliquot.storage.cache.transfers.transfer import FileRequest, Transfer, TransferState
from aliquot.storage.records import Found


class TransferProgress:
    """Files up to `whole_bytes` are given out when they are whole, larger ones as soon as their version is known."""

    def __init__(
        self, whole_bytes: int, space: CacheSpace, table: TransferTable, reservations: SpaceReservations
    ) -> None:
        self.open_handles = 0
        self._whole_bytes = whole_bytes
        self._space = space
        self._table = table
        self._reservations = reservations

    def advance(self, transfer: Transfer, *, now: float) -> None:
        """Serve the requests that can be served now, and fetch the file for the others."""
        entry = transfer.entry
        if entry is None:
            return
        if entry.whole:
            self._hand_over_to(transfer, transfer.waiting, entry, now=now)
        elif transfer.ranged and entry.listed.size > self._whole_bytes:
            self._hand_over_to_opens(transfer, entry, now=now)
        if transfer.waiting and not transfer.is_reserved:
            self._fetch_all(transfer, entry, now=now)
            if transfer.entry is not entry:  # it was restarted
                return
        if transfer.is_reserved and entry.complete and not entry.whole and transfer.state is TransferState.MOVING:
            transfer.state = TransferState.COMPLETE
        self._table.end_if_unwanted(transfer, now=now)

    def _fetch_all(self, transfer: Transfer, entry: CacheEntry, *, now: float) -> None:
        if self._reservations.reserve_file(transfer, entry, now=now):
            for chunk in entry.missing():
                transfer.want(chunk)
            return
        if transfer.ranged and not transfer.is_asked:
            transfer.must_ask = True
            self._table.restart(transfer, now=now)
            return
        if transfer.ranged:  # it can be read without being here as a whole
            self._hand_over_to_opens(transfer, entry, now=now)
        self._table.fail_waiting(transfer, self._reservations.no_room(entry))

    def _hand_over_to_opens(self, transfer: Transfer, entry: CacheEntry, *, now: float) -> None:
        self._hand_over_to(transfer, [request for request in transfer.waiting if request.opens], entry, now=now)

    def _hand_over_to(self, transfer: Transfer, requests: list[FileRequest], entry: CacheEntry, *, now: float) -> None:
        transfer.waiting = [request for request in transfer.waiting if request not in requests]
        for request in requests:
            self._table.decisions.append(self.hand_over(request, entry, was_fetched=transfer.was_fetched, now=now))

    def hand_over(self, request: FileRequest, entry: CacheEntry, *, was_fetched: bool, now: float) -> HandOver:
        """Give an entry to a request. The entry of a request that opens it is pinned from now on."""
        found = Found.PREFETCHED if entry.predicted else Found.FETCHED if was_fetched else Found.CACHED
        if request.opens:
            self._space.pin(entry)
            self.open_handles += 1
            entry.predicted = False
        return HandOver(request, entry, found, now - request.since_s)

    def handed_over(self, done: HandOver, *, now: float) -> None:
        """Count an open that succeeded."""
        if not done.request.opens:
            return
        done.entry.used(now)
        stats = self._space.stats_of(done.entry.key.dataset)
        stats.hits += done.found is not Found.FETCHED
        stats.misses += done.found is Found.FETCHED

    def file_lost(self, lost: HandOver, *, now: float) -> None:
        """Drop an entry whose file has disappeared from the disk. Its transfer begins again."""
        entry = lost.entry
        if lost.request.opens:
            self.unpin(entry, now=now)
        transfer = self._table.by_key.get(entry.key)
        if transfer is not None and transfer.entry is entry:
            self._table.restart(transfer, now=now)
        self._space.drop(entry, now=now)

    def unpin(self, entry: CacheEntry, *, now: float) -> None:
        self.open_handles -= 1
        self._space.unpin(entry, now=now)
