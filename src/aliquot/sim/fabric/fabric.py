"""The simulated fabric: performs the core's commands about files, and reads files for running calls.

When a call runs, it opens its files one after the other and waits for each one that is not cached. It computes after
the last one. An open makes a running prefetch of the same file urgent. After each open, the core receives a new
prediction.
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

PREDICTION_S = 0.001  # time that a prediction takes


class ReadingCall:
    """A call that is reading its files."""

    __slots__ = ("audience", "began", "left", "opened", "then")

    def __init__(self, arrival: Arrival, now: float, then: Callable[[float], None]) -> None:
        self.audience = caller_of(arrival)
        self.began = now
        self.left = [file_key(name) for name in reversed(arrival.reads)]
        self.opened: list[CachedFile] = []
        self.then = then


class SimulatedFabric:
    """The link, the cache and the predictor of a simulation."""

    def __init__(self, storage: StorageSettings, workload: Iterable[Arrival], queue: EventQueue) -> None:
        self._sizes = storage.files
        self._queue = queue
        self._link = OriginLink(queue, storage.bandwidth_bytes_s, storage.latency_s)
        self._cache = FileCache(storage.cache_bytes, storage.eviction)
        self._predictor = make_predictor(storage.predictor, workload, storage.files)
        self._counters = DataCounters()
        self._audiences: dict[AudienceKey, None] = {}  # audiences for which the core wants predictions
        self._fetches: dict[int, FileTransfer] = {}  # running prefetches
        self._open: dict[str, list[CachedFile]] = {}  # open files by call
        if storage.files:
            self._schedule_sessions(workload, storage.lead_s)

    def figures(self) -> DataFigures | None:
        return self._counters.figures(self._cache.unopened_bytes() + self._cache.wasted_bytes) if self._sizes else None

    def _schedule_sessions(self, workload: Iterable[Arrival], lead_s: float) -> None:
        """Schedule the start of each session, `lead_s` before its first call."""
        first: dict[tuple[str, str], float] = {}
        for arrival in workload:
            if arrival.session is not None:
                first.setdefault((arrival.tenant, arrival.session), arrival.time_s)
        for key, time_s in first.items():
            at = max(0, after(time_s, -lead_s))
            self._queue.add(at, SessionBegan(*key))

    def observe(self, events: Iterable[Event]) -> None:
        """Report new sessions to the predictor."""
        for event in events:
            if type(event) is SessionBegan:
                self._predictor.session_began((event.tenant, event.session))

    # --- performing commands ----------------------------------------------------------------------------

    def predict(self, command: Predict, now: float) -> None:
        audience = (command.tenant, command.session)
        self._audiences[audience] = None
        self._send_prediction(audience, command.function, now)

    def fetch(self, command: Fetch, now: float) -> None:
        """Start a prefetch, or join the transfer of the same file that is in progress."""
        key = (command.dataset, command.path)
        if key in self._cache:
            self._queue.add(now, FetchEnded(command.fetch, 0))
            return
        transfer = self._link.transfer(key)
        if transfer is None:
            transfer = self._begin(key, now, urgent=False)
        self._fetches[command.fetch] = transfer
        transfer.then.append(partial(self._fetched, command.fetch, now))

    def cancel(self, command: CancelFetch, now: float) -> None:
        """Cancel a prefetch. One that a call waits for continues, and its end is reported as usual."""
        transfer = self._fetches.get(command.fetch)
        if transfer is None or transfer.urgent:
            return
        del self._fetches[command.fetch]
        moved = self._link.cancel(transfer, now)
        self._counters.moved_bytes += moved
        self._counters.prefetched_bytes += moved
        self._counters.wasted_bytes += moved
        self._queue.add(now, FetchEnded(command.fetch, between(transfer.began, now)))

    def _fetched(self, fetch: int, began: float, now: float) -> None:
        del self._fetches[fetch]
        self._queue.add(now, FetchEnded(fetch, between(began, now)))

    def _begin(self, key: FileKey, now: float, *, urgent: bool) -> FileTransfer:
        transfer = self._link.begin(key, self._sizes[key], now, urgent=urgent)
        transfer.then.append(partial(self._arrived, transfer))
        return transfer

    def _arrived(self, transfer: FileTransfer, now: float) -> None:
        size = transfer.size
        self._counters.moved_bytes += size
        self._counters.prefetched_bytes += size if transfer.early else 0
        self._cache.add(transfer.key, size, self._link.alone_s(size), now, unopened=not transfer.urgent)

    def _send_prediction(self, audience: AudienceKey, function: str, now: float) -> None:
        likely = self._predictor.next_files(audience, function)
        files = [file for file in likely if (file.dataset, file.path) not in self._cache]
        self._queue.add(after(now, PREDICTION_S), FilesPredicted(*audience, "simulated", tuple(files)))

    # --- calls ------------------------------------------------------------------------------------------

    def read(self, call: str, arrival: Arrival, now: float, then: Callable[[float], None]) -> None:
        """Open a call's files one after the other, then call `then` with the time."""
        self._predictor.call_started(arrival)
        reading = ReadingCall(arrival, now, then)
        self._open[call] = reading.opened
        self._read_next(reading, now)

    def close(self, call: str, now: float) -> None:
        """Close the files of a call that has ended."""
        for entry in self._open.pop(call, ()):
            self._cache.close(entry, now)

    def _read_next(self, reading: ReadingCall, now: float) -> None:
        while reading.left:
            key = reading.left.pop()
            state = self._state(key)
            self._counters.opened[state] += 1
            self._counters.transfer_s += self._link.alone_s(self._sizes[key]) if state != "cached" else 0
            self._predictor.file_opened(reading.audience, key, self._sizes[key])
            if reading.audience in self._audiences:
                self._send_prediction(reading.audience, "", now)
            if key not in self._cache:
                self._wait_for(key, reading, now)
                return
            self._keep_open(key, reading)
        self._counters.waited_s.append(between(reading.began, now))
        reading.then(now)

    def _state(self, key: FileKey) -> str:
        """Return how an open finds the file: cached, prefetched or fetched."""
        if key in self._cache:
            return "prefetched" if self._cache.is_unopened(key) else "cached"
        transfer = self._link.transfer(key)
        return "prefetched" if transfer is not None and transfer.early else "fetched"

    def _wait_for(self, key: FileKey, reading: ReadingCall, now: float) -> None:
        transfer = self._link.transfer(key)
        if transfer is None:
            transfer = self._begin(key, now, urgent=True)
        else:
            self._link.promote(transfer, now)
        transfer.then.append(partial(self._received, key, reading))

    def _received(self, key: FileKey, reading: ReadingCall, now: float) -> None:
        self._keep_open(key, reading)
        self._read_next(reading, now)

    def _keep_open(self, key: FileKey, reading: ReadingCall) -> None:
        entry = self._cache.open(key)
        if entry is not None:  # None if it did not fit into the cache
            reading.opened.append(entry)
