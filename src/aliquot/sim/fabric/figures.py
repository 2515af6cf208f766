"""Figures about the files of a simulation: how opens found them, how long calls waited, and wasted transfers."""

from array import array

from msgspec import Struct

from aliquot.sim.statistics import Summary, rounded, summarise


class DataFigures(Struct):
    """The figures about files in the report of a run."""

    opened: dict[str, int]  # numbers of opened files: cached, prefetched, fetched
    data_s: Summary  # time that a call which reads files waited for them
    hidden: float | None  # part of the pure transfer times that no call waited for; None without transfers
    moved_bytes: int  # over the link
    prefetched_bytes: int  # part of moved_bytes whose transfer began before an open
    wasted_bytes: int  # part of prefetched_bytes that was never opened
    wasted: float  # wasted_bytes / moved_bytes


class DataCounters:
    """Counts opens, waits and transfers during a run."""

    def __init__(self) -> None:
        self.opened = dict.fromkeys(("cached", "prefetched", "fetched"), 0)
        self.waited_s = array("d")  # one value per call that reads files
        self.transfer_s = 0.0  # pure transfer times of all opened files that were not cached
        self.moved_bytes = self.prefetched_bytes = self.wasted_bytes = 0

    def figures(self, unopened_bytes: int) -> DataFigures:
        """Compute the figures. `unopened_bytes` are wasted bytes that the cache has counted."""
        waited_s, wasted = sum(self.waited_s), self.wasted_bytes + unopened_bytes
        return DataFigures(
            self.opened,
            summarise(self.waited_s),
            rounded(max(0.0, 1 - waited_s / self.transfer_s)) if self.transfer_s else None,
            self.moved_bytes,
            self.prefetched_bytes,
            wasted,
            rounded(wasted / self.moved_bytes) if self.moved_bytes else 0,
        )
