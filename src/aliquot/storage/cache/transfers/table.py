"""The running transfers, one per file: how they start, restart, fail and end."""

from itertools import count

from aliquot.storage.cache.transfers.decisions import Decision, FailRequest, RemoveFile, ServeRead
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.parallelism import ChunkParallelism
from aliquot.storage.cache.transfers.schedule import workers_per_link
from aliquot.storage.cache.transfers.space import CacheSpace
from aliquot.storage.cache.transfers.transfer import Transfer, TransferOrigin, TransferState
from aliquot.storage.errors import ChangedError
from aliquot.storage.records import FileKey


class TransferTable:
    """Holds the transfers by file, and collects the decisions until they are taken."""

    def __init__(self, space: CacheSpace, workers: int) -> None:
        self.by_key: dict[FileKey, Transfer] = {}
        self.decisions: list[Decision] = []
        self._space = space
        self._numbers = count()
        self._max_chunks = workers_per_link(workers)
        self._parallelism: dict[str, ChunkParallelism] = {}  # by link

    def take_decisions(self) -> list[Decision]:
        removed: list[Decision] = [RemoveFile(entry) for entry in self._space.take_dropped()]
        decisions, self.decisions = self.decisions, []
        return removed + decisions

    def start(self, key: FileKey, origin: TransferOrigin, *, now: float) -> Transfer:
        """Return the transfer of a file, a new one if none is running from this origin."""
        transfer = self.by_key.get(key)
        if transfer is not None and transfer.origin.identity != origin.identity:
            transfer.attempt += 1  # its running steps no longer count, so that it ends with its requests
            self.fail(transfer, ChangedError(f"{key}: its dataset has another origin now"), now=now)
            transfer = None
        if transfer is None:
            parallelism = self._parallelism.setdefault(origin.link, ChunkParallelism(self._max_chunks))
            transfer = self.by_key[key] = Transfer(key, origin, next(self._numbers), parallelism, now=now)
        return transfer

    def use(self, transfer: Transfer, entry: CacheEntry) -> None:
        """Let a transfer fill an entry, or give it to its requests."""
        transfer.entry = entry
        transfer.state = TransferState.MOVING
        self._space.begin(entry)

    def serve_reads(self, transfer: Transfer, entry: CacheEntry) -> None:
        """Serve the reads whose bytes are all on disk."""
        ready = [read for read in transfer.readers if entry.has(read.offset, read.length)]
        transfer.readers = [read for read in transfer.readers if read not in ready]
        self.decisions += [ServeRead(read, entry, entry.freed_count) for read in ready]

    def restart(self, transfer: Transfer, *, now: float) -> None:
        """Begin again from nothing, without the chunks fetched so far."""
        entry = transfer.entry
        if entry is not None:
            self._space.release_all(entry)
            self._space.drop(entry, now=now)
            self._space.end(entry, now=now)
        transfer.restart()
        self.end_if_unwanted(transfer, now=now)

    def fail(self, transfer: Transfer, error: Exception, *, now: float) -> None:
        """End a transfer with an error for all its requests. Only an entry with open handles is left of it."""
        self.fail_waiting(transfer, error)
        self.fail_reads(transfer, error)
        transfer.state = TransferState.MOVING
        transfer.wanted.clear()
        self.end_if_unwanted(transfer, now=now)

    def fail_waiting(self, transfer: Transfer, error: Exception) -> None:
        self.decisions += [FailRequest(request, error) for request in transfer.waiting]
        transfer.waiting = []

    def fail_reads(self, transfer: Transfer, error: Exception) -> None:
        self.decisions += [FailRequest(read, error) for read in transfer.readers]
        transfer.readers = []

    def end_if_unwanted(self, transfer: Transfer, *, now: float) -> None:
        """End a transfer without requests. Chunks of a file that is read in parts are kept, others dropped."""
        entry = transfer.entry
        # Read-ahead for an open file continues without requests, and a file that arrived in parts is committed.
        is_all_here = transfer.state is TransferState.COMPLETE and not transfer.is_reserved
        is_wanted = entry is not None and (is_all_here or (entry.pins > 0 and transfer.has_work))
        if transfer.waiting or transfer.readers or is_wanted or self.by_key.get(transfer.key) is not transfer:
            return
        del self.by_key[transfer.key]
        transfer.end()
        if entry is None:
            return
        self._space.release_all(entry)
        if not entry.whole and entry.pins == 0 and (transfer.is_reserved or not entry.digests):
            self._space.drop(entry, now=now)
        self._space.end(entry, now=now)
