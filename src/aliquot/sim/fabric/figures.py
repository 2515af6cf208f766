"""What calls had of the fabric: what their opens found, how long they waited, and what was moved for nothing."""

from array import array

from msgspec import Struct

from aliquot.sim.statistics import Summary, rounded, summarise


class DataFigures(Struct):
    """Of one run, as the report has them."""

    opened: dict[str, int]  # how many files, by what the open found
    data_s: Summary  # that a call which reads waited for its files
    hidden: float | None  # of what the transfers would have taken, had each begun with its open; None: there were none
    moved_bytes: int  # over the link
    prefetched_bytes: int  # of those: before anyone asked
    wasted_bytes: int  # of those: never opened
    wasted: float  # the part that those are of what was moved


class DataCounters:
    def __init__(self) -> None:
        self.opened = dict.fromkeys(("cached", "prefetched", "fetched"), 0)
        self.waited_s = array("d")  # by each call that reads
        self.due_s = 0.0  # what the transfers of files that were not there from an earlier use take alone
        self.moved_bytes = self.prefetched_bytes = self.wasted_bytes = 0

    def figures(self, left_unasked: int) -> DataFigures:
        waited_s, wasted = sum(self.waited_s), self.wasted_bytes + left_unasked
        return DataFigures(
            self.opened,
            summarise(self.waited_s),
            rounded(max(0.0, 1 - waited_s / self.due_s)) if self.due_s else None,
            self.moved_bytes,
            self.prefetched_bytes,
            wasted,
            rounded(wasted / self.moved_bytes) if self.moved_bytes else 0,
        )
