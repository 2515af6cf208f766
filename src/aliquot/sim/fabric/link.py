"""The simulated link between node and origin.

Transfers that calls wait for share the link. While there are none, prefetches use it one after the other, in the order
in which they began, because the most likely file comes first.
"""

from collections.abc import Callable, Mapping
from functools import partial

from aliquot.core.clock import after
from aliquot.core.prefetching.records import FileKey
from aliquot.sim.event_queue import EventQueue
from aliquot.sim.shared_resource import ResourceUse, SharedResource

PAUSED_PACE = 1e9  # so slow that the transfer makes no progress before its pace changes


class FileTransfer:
    """One file in transfer."""

    __slots__ = ("began", "early", "key", "size", "then", "urgent", "use")

    def __init__(self, key: FileKey, size: int, now: float, *, urgent: bool) -> None:
        self.key = key
        self.size = size
        self.began = now
        self.urgent = urgent  # a call waits for it
        self.early = not urgent  # it began as a prefetch
        self.use: ResourceUse | None = None  # its use of the link; None until the first byte
        self.then: list[Callable[[float], None]] = []


class OriginLink:
    """All transfers between the origin and the node."""

    def __init__(self, queue: EventQueue, bandwidth_bytes_s: float, latency_s: float) -> None:
        self._queue = queue
        self._bandwidth = bandwidth_bytes_s
        self._latency_s = latency_s
        self._shared: SharedResource[FileKey] = SharedResource(queue, self._paces)
        self._transfers: dict[FileKey, FileTransfer] = {}

    def alone_s(self, size: int) -> float:
        """Return the transfer time of a file of that size on an otherwise unused link."""
        return self._latency_s + size / self._bandwidth

    def transfer(self, key: FileKey) -> FileTransfer | None:
        return self._transfers.get(key)

    def begin(self, key: FileKey, size: int, now: float, *, urgent: bool) -> FileTransfer:
        transfer = self._transfers[key] = FileTransfer(key, size, now, urgent=urgent)
        self._queue.add(after(now, self._latency_s), partial(self._enter, transfer))
        return transfer

    def promote(self, transfer: FileTransfer, now: float) -> None:
        """Make a transfer urgent, because a call waits for it now."""
        if not transfer.urgent:
            transfer.urgent = True
            self._shared.update_paces(now)

    def cancel(self, transfer: FileTransfer, now: float) -> int:
        """Abort a transfer and return the bytes received so far."""
        del self._transfers[transfer.key]
        if transfer.use is None:
            return 0
        self._shared.end([transfer.key], now, done=False)
        return transfer.size - round(transfer.use.left_s * self._bandwidth)

    def _enter(self, transfer: FileTransfer, now: float) -> None:
        if self._transfers.get(transfer.key) is not transfer:  # cancelled
            return
        transfer.use = ResourceUse(
            transfer.size / self._bandwidth, 1, now, lambda _began, _at: partial(self._end, transfer)
        )
        self._shared.begin(transfer.key, transfer.use, now)

    def _end(self, transfer: FileTransfer, now: float) -> None:
        del self._transfers[transfer.key]
        self._shared.end([transfer.key], now, done=True)
        for then in transfer.then:
            then(now)

    def _paces(self, uses: Mapping[FileKey, ResourceUse]) -> list[float]:
        urgent = [self._transfers[key].urgent for key in uses]
        urgent_count = sum(urgent)
        if urgent_count:
            return [urgent_count if is_urgent else PAUSED_PACE for is_urgent in urgent]
        return [1 if not index else PAUSED_PACE for index in range(len(uses))]
