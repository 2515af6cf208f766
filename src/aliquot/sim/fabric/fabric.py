"""The simulated fabric: performs what the core commands of files, lets calls read theirs, and keeps the account.

A call opens its files one after the other when it runs, waits for each that is not here, and computes when it has read
the last. An open overtakes a prefetch of the same file; after each open the core is told what is expected next.
"""

from collections.abc import Callable, Iterable
from functools import partial

from aliquot.core.clock import after, between
from aliquot.core.commands import CancelFetch, Fetch, Predict
from aliquot.core.events import Event, FetchEnded, FilesPredicted, SessionBegan
from aliquot.core.prefetching.records import AudienceKey, FileKey
from aliquot.sim.arrivals import Arrival
from aliquot.sim.event_queue import EventQueue
from aliquot.sim.fabric.cache import CachedFile, FileCache
from aliquot.sim.fabric.figures import DataCounters, DataFigures
from aliquot.sim.fabric.link import FileTransfer, OriginLink
from aliquot.sim.fabric.predictors import caller_of, make_predictor
from aliquot.sim.fabric.storage import StorageSettings, file_key

PREDICTION_S = 0.001  # from question to answer


class ReadingCall:
    """A call that reads its files."""

    __slots__ = ("audience", "began", "left", "opened", "then")

    def __init__(self, arrival: Arrival, now: float, then: Callable[[float], None]) -> None:
        self.audience = caller_of(arrival)
        self.began = now
        self.left = [file_key(name) for name in reversed(arrival.reads)]
        self.opened: list[CachedFile] = []
        self.then = then


class SimulatedFabric:
    def __init__(self, storage: StorageSettings, workload: Iterable[Arrival], agenda: EventQueue) -> None:
        self._sizes = storage.files
        self._agenda = agenda
        self._link = OriginLink(agenda, storage.bandwidth_bytes_s, storage.latency_s)
        self._cache = FileCache(storage.cache_bytes, storage.eviction)
        self._predicting = make_predictor(storage.predictor, workload, storage.files)
        self._account = DataCounters()
        self._asked: dict[AudienceKey, None] = {}  # those whose predictions are wanted
        self._fetches: dict[int, FileTransfer] = {}  # prefetches under way
        self._open: dict[str, list[CachedFile]] = {}  # by call
        if storage.files:
            self._schedule_sessions(workload, storage.lead_s)

    def figures(self) -> DataFigures | None:
        return self._account.figures(self._cache.left_unasked() + self._cache.wasted_bytes) if self._sizes else None

    def _schedule_sessions(self, workload: Iterable[Arrival], lead_s: float) -> None:
        """Each begins so long before its first call."""
        first: dict[tuple[str, str], float] = {}
        for arrival in workload:
            if arrival.session is not None:
                first.setdefault((arrival.tenant, arrival.session), arrival.time_s)
        for key, time_s in first.items():
            at = max(0, after(time_s, -lead_s))
            self._agenda.add(at, SessionBegan(*key))

    def notice(self, events: Iterable[Event]) -> None:
        """What the predictor sees of what the core is told."""
        for event in events:
            if type(event) is SessionBegan:
                self._predicting.began((event.tenant, event.session))

    # --- performing commands ----------------------------------------------------------------------------

    def predict(self, command: Predict, now: float) -> None:
        audience = (command.tenant, command.session)
        self._asked[audience] = None
        self._tell_expected(audience, command.function, now)

    def fetch(self, command: Fetch, now: float) -> None:
        key = (command.dataset, command.path)
        if key in self._cache:
            self._agenda.add(now, FetchEnded(command.fetch, 0))
            return
        transfer = self._link.transfer(key)
        if transfer is None:
            transfer = self._begin(key, now, urgent=False)
        self._fetches[command.fetch] = transfer
        transfer.then.append(partial(self._fetched, command.fetch, now))

    def cancel(self, command: CancelFetch, now: float) -> None:
        """Unless somebody waits for it by now: then its end comes of itself."""
        transfer = self._fetches.get(command.fetch)
        if transfer is None or transfer.urgent:
            return
        del self._fetches[command.fetch]
        moved = self._link.cancel(transfer, now)
        self._account.moved_bytes += moved
        self._account.prefetched_bytes += moved
        self._account.wasted_bytes += moved
        self._agenda.add(now, FetchEnded(command.fetch, between(transfer.began, now)))

    def _fetched(self, fetch: int, began: float, now: float) -> None:
        del self._fetches[fetch]
        self._agenda.add(now, FetchEnded(fetch, between(began, now)))

    def _begin(self, key: FileKey, now: float, *, urgent: bool) -> FileTransfer:
        transfer = self._link.begin(key, self._sizes[key], now, urgent=urgent)
        transfer.then.append(partial(self._arrived, transfer))
        return transfer

    def _arrived(self, transfer: FileTransfer, now: float) -> None:
        size = transfer.size
        self._account.moved_bytes += size
        self._account.prefetched_bytes += size if transfer.early else 0
        self._cache.add(transfer.key, size, self._link.alone_s(size), now, unasked=not transfer.urgent)

    def _tell_expected(self, audience: AudienceKey, function: str, now: float) -> None:
        likely = self._predicting.next_files(audience, function)
        files = [file for file in likely if (file.dataset, file.path) not in self._cache]
        self._agenda.add(after(now, PREDICTION_S), FilesPredicted(*audience, "simulated", tuple(files)))

    # --- calls ------------------------------------------------------------------------------------------

    def read(self, call: str, arrival: Arrival, now: float, then: Callable[[float], None]) -> None:
        """Open its files one after the other; `then` is told when it has them all."""
        self._predicting.called(arrival)
        reading = ReadingCall(arrival, now, then)
        self._open[call] = reading.opened
        self._go_on(reading, now)

    def close(self, call: str, now: float) -> None:
        """The call has ended."""
        for entry in self._open.pop(call, ()):
            self._cache.close(entry, now)

    def _go_on(self, reading: ReadingCall, now: float) -> None:
        while reading.left:
            key = reading.left.pop()
            found = self._found(key)
            self._account.opened[found] += 1
            self._account.due_s += self._link.alone_s(self._sizes[key]) if found != "cached" else 0
            self._predicting.opened(reading.audience, key, self._sizes[key])
            if reading.audience in self._asked:
                self._tell_expected(reading.audience, "", now)
            if key not in self._cache:
                self._wait_for(key, reading, now)
                return
            self._keep_open(key, reading)
        self._account.waited_s.append(between(reading.began, now))
        reading.then(now)

    def _found(self, key: FileKey) -> str:
        if key in self._cache:
            return "prefetched" if self._cache.is_unasked(key) else "cached"
        transfer = self._link.transfer(key)
        return "prefetched" if transfer is not None and transfer.early else "fetched"

    def _wait_for(self, key: FileKey, reading: ReadingCall, now: float) -> None:
        transfer = self._link.transfer(key)
        if transfer is None:
            transfer = self._begin(key, now, urgent=True)
        else:
            self._link.promote(transfer, now)
        transfer.then.append(partial(self._came, key, reading))

    def _came(self, key: FileKey, reading: ReadingCall, now: float) -> None:
        self._keep_open(key, reading)
        self._go_on(reading, now)

    def _keep_open(self, key: FileKey, reading: ReadingCall) -> None:
        entry = self._cache.open(key)
        if entry is not None:  # there may have been no room for it
            reading.opened.append(entry)
