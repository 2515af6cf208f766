"""The link between node and origin: what somebody waits for shares it, what is prefetched has it while nobody waits.

Prefetches have it one after the other, in the order in which they began, for the most likely comes first.
"""

from collections.abc import Callable, Mapping
from functools import partial

from aliquot.core.clock import after
from aliquot.core.prefetching.records import FileKey
from aliquot.sim.event_queue import EventQueue
from aliquot.sim.shared_resource import ResourceUse, SharedResource

PAUSED_PACE = 1e9  # a pace: it is set anew before anything comes of it


class FileTransfer:
    """One file on its way."""

    __slots__ = ("began", "early", "key", "size", "then", "urgent", "use")

    def __init__(self, key: FileKey, size: int, now: float, *, urgent: bool) -> None:
        self.key = key
        self.size = size
        self.began = now
        self.urgent = urgent  # somebody waits for it
        self.early = not urgent  # it began before anybody did
        self.use: ResourceUse | None = None  # of the link; None: the origin has not answered yet
        self.then: list[Callable[[float], None]] = []


class OriginLink:
    def __init__(self, agenda: EventQueue, bandwidth_bytes_s: float, latency_s: float) -> None:
        self._agenda = agenda
        self._bandwidth = bandwidth_bytes_s
        self._latency_s = latency_s
        self._lane: SharedResource[FileKey] = SharedResource(agenda, self._paces)
        self._transfers: dict[FileKey, FileTransfer] = {}

    def alone_s(self, size: int) -> float:
        """How long a file of that size takes if nothing else is on the link."""
        return self._latency_s + size / self._bandwidth

    def transfer(self, key: FileKey) -> FileTransfer | None:
        return self._transfers.get(key)

    def begin(self, key: FileKey, size: int, now: float, *, urgent: bool) -> FileTransfer:
        transfer = self._transfers[key] = FileTransfer(key, size, now, urgent=urgent)
        self._agenda.add(after(now, self._latency_s), partial(self._enter, transfer))
        return transfer

    def promote(self, transfer: FileTransfer, now: float) -> None:
        """Somebody waits for it now."""
        if not transfer.urgent:
            transfer.urgent = True
            self._lane.divide_anew(now)

    def cancel(self, transfer: FileTransfer, now: float) -> int:
        """Returns the bytes that had come."""
        del self._transfers[transfer.key]
        if transfer.use is None:
            return 0
        self._lane.end([transfer.key], now, done=False)
        return transfer.size - round(transfer.use.left_s * self._bandwidth)

    def _enter(self, transfer: FileTransfer, now: float) -> None:
        if self._transfers.get(transfer.key) is not transfer:  # cancelled
            return
        transfer.use = ResourceUse(
            transfer.size / self._bandwidth, 1, now, lambda _began, _at: partial(self._end, transfer)
        )
        self._lane.begin(transfer.key, transfer.use, now)

    def _end(self, transfer: FileTransfer, now: float) -> None:
        del self._transfers[transfer.key]
        self._lane.end([transfer.key], now, done=True)
        for then in transfer.then:
            then(now)

    def _paces(self, uses: Mapping[FileKey, ResourceUse]) -> list[float]:
        urgent = [self._transfers[key].urgent for key in uses]
        waited_for = sum(urgent)
        if waited_for:
            return [waited_for if is_urgent else PAUSED_PACE for is_urgent in urgent]
        return [1 if not place else PAUSED_PACE for place in range(len(uses))]
