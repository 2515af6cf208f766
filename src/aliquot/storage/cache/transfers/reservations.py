"""Space for incoming bytes: made by evicting entries, cancelling prefetches or freeing chunks already read."""

from aliquot.storage.cache.records import Urgency
from aliquot.storage.cache.transfers.decisions import FreeChunk
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.space import CacheSpace
from aliquot.storage.cache.transfers.table import TransferTable
from aliquot.storage.cache.transfers.transfer import Transfer, TransferState, TransferStep
from aliquot.storage.errors import RoomError

READ_AHEAD_CHUNKS = 8  # fetched for a sequential reader before it asks for them


class SpaceReservations:
    """Reserves space for whole files and for single chunks."""

    def __init__(self, space: CacheSpace, table: TransferTable) -> None:
        self._space = space
        self._table = table

    def reserve_file(self, transfer: Transfer, entry: CacheEntry, *, now: float) -> bool:
        """Reserve space for all chunks of a file that are not here yet. Return False if there is none."""
        present_bytes = sum(entry.span(chunk)[1] for chunk in entry.digests)
        wanted_bytes = entry.listed.size - present_bytes - entry.reserved_bytes
        if not self._make_room(transfer, wanted_bytes, now=now):
            return False
        self._space.reserve(entry, wanted_bytes)
        transfer.is_reserved = True
        return True

    def reserve_chunk(self, step: TransferStep, *, can_free: bool, now: float) -> bool | FreeChunk:
        """Reserve space for one chunk of a file that has none reserved as a whole.

        If only older chunks of the file can make space, return the one to free. The worker frees it and asks again,
        with `can_free` false if it could not. False: the chunk is not to be fetched.
        """
        transfer, entry = step.transfer, step.transfer.entry
        if transfer.is_reserved or entry is None:
            return True
        length = entry.span(step.chunk)[1]
        awaited = _awaited_chunks(transfer, entry)
        if self._make_room(transfer, length, now=now):
            self._space.reserve(entry, length)
            return True
        if step.chunk in awaited:
            freeable = set(entry.digests) - awaited
        else:  # read-ahead replaces only chunks that are well behind it
            freeable = set(range(step.chunk - READ_AHEAD_CHUNKS - 1))
        free = _oldest_chunk(entry, freeable)
        if can_free and free is not None:
            return free
        if step.chunk in awaited:
            self._table.fail(transfer, self.no_room(entry), now=now)
        return False

    def make_room_on_disk(self, step: TransferStep, *, can_free: bool, now: float) -> bool | FreeChunk:
        """Make the cache smaller because the disk is full before the cache's limit is reached.

        Answers like `reserve_chunk`. False: nothing in the cache can be removed.
        """
        if self._space.evict(now=now):
            return True
        transfer, entry = step.transfer, step.transfer.entry
        if transfer.urgency is Urgency.DEMAND:
            for other in self._background_transfers()[-1:]:
                self._give_way(other, transfer, now=now)
                return True
        if entry is None or transfer.is_reserved or transfer.state is not TransferState.MOVING or not can_free:
            return False
        return _oldest_chunk(entry, set(entry.digests) - _awaited_chunks(transfer, entry)) or False

    def chunk_freed(self, free: FreeChunk) -> None:
        entry, chunk = free
        del entry.digests[chunk]
        entry.unconfirmed.discard(chunk)
        entry.freed_count += 1
        self._space.freed(entry, entry.span(chunk)[1])

    def no_room(self, entry: CacheEntry) -> RoomError:
        """Build the error that says why the file does not fit."""
        space = self._space
        if entry.listed.size > space.limit_bytes:
            why = f"the cache holds {space.limit_bytes} bytes in all (aliquot up --cache-size)"
        else:
            why = f"{space.used_bytes} of the cache's {space.limit_bytes} bytes are in use by open files and transfers"
        return RoomError(f"{entry.key}: no space for its {entry.listed.size} bytes: {why}")

    def _make_room(self, transfer: Transfer, wanted_bytes: int, *, now: float) -> bool:
        """Evict entries. For a demanded file, also cancel transfers that no reader waits for, the latest first."""
        if self._space.make_room(wanted_bytes, now=now):
            return True
        if transfer.urgency is not Urgency.DEMAND or wanted_bytes > self._space.limit_bytes:
            return False
        for other in reversed(self._background_transfers()):
            self._give_way(other, transfer, now=now)
            if self._space.make_room(wanted_bytes, now=now):
                return True
        return False

    def _background_transfers(self) -> list[Transfer]:
        """Return the transfers with an entry that no reader waits for, the oldest first."""
        transfers = self._table.by_key.values()
        return [each for each in transfers if each.urgency is not Urgency.DEMAND and each.entry is not None]

    def _give_way(self, other: Transfer, transfer: Transfer, *, now: float) -> None:
        error = RoomError(
            f"{other.key}: its transfer was cancelled to make space for {transfer.key}, which a reader waits for"
        )
        self._table.fail(other, error, now=now)


def _oldest_chunk(entry: CacheEntry, freeable: set[int]) -> FreeChunk | None:
    chunk = next((chunk for chunk in entry.digests if chunk in freeable and chunk not in entry.holes), None)
    return None if chunk is None else FreeChunk(entry, chunk)


def _awaited_chunks(transfer: Transfer, entry: CacheEntry) -> set[int]:
    return set().union(*(entry.chunks_of(reader.offset, reader.length) for reader in transfer.readers))
