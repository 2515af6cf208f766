"""S3-FIFO (Yang et al., SOSP 2023): three queues; most of what comes is used once, and leaves early.

What is new waits in a small queue. There, an entry that is used twice more moves on to the main queue, any other goes
and leaves its number in a ghost queue; what comes back while its ghost is there goes to the main queue at once. In the
main queue what was used since it was last looked at goes round again, with one use less to its credit.

The paper's cache has a size; this one is told who is here, and takes the most that was here at once for its size. Until
somebody must go for the first time there is room for all, and what came after the small queue was full is in the main.
"""

from collections import OrderedDict

from aliquot.core.interfaces import E, Eviction, Params

SMALL = 0.1  # the small queue's part of the bytes
GHOSTS = 0.9  # of the bytes, too
PROMOTED_AT = 2  # uses in the small queue
MAX_USES = 3  # that the main queue counts


class S3Fifo(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._small: OrderedDict[int, E] = OrderedDict()
        self._main: OrderedDict[int, E] = OrderedDict()
        self._uses: dict[int, int] = {}  # since it came, or was last looked at
        self._busy: set[int] = set()  # in use: they keep their place, and are passed over
        self._ghosts: OrderedDict[int, int] = OrderedDict()  # bytes
        self._bytes = 0
        self._small_bytes = 0
        self._ghost_bytes = 0
        self._most_bytes = 0  # that were here at once: the size
        self._named: int | None = None
        self._filled = False

    def add(self, entry: E, *, now: float) -> None:
        self._busy.discard(entry.id)
        if entry.id in self._uses:
            self._uses[entry.id] += 1
            return
        self._uses[entry.id] = 0
        self._bytes += entry.bytes
        self._most_bytes = max(self._most_bytes, self._bytes)
        ghost = self._ghosts.pop(entry.id, None)
        if ghost is not None:
            self._ghost_bytes -= ghost
            self._main[entry.id] = entry
        else:
            self._small[entry.id] = entry
            self._small_bytes += entry.bytes

    def remove(self, entry: E) -> None:
        if entry.id in self._uses:
            self._busy.add(entry.id)

    def forget(self, entry: E) -> None:
        if self._uses.pop(entry.id, None) is None:
            return
        self._busy.discard(entry.id)
        self._bytes -= entry.bytes
        if self._small.pop(entry.id, None) is None:
            del self._main[entry.id]
            return
        self._small_bytes -= entry.bytes
        if entry.id == self._named:
            self._haunt(entry)

    def victim(self, *, now: float) -> E | None:
        self._named = None
        found: E | None = None
        if not self._filled:
            self._fill_main()
        if len(self._busy) < len(self._uses):
            main_bytes = self._bytes - self._small_bytes
            if main_bytes <= self._most_bytes - self._small_share:
                found = self._leave_small()
            found = found or self._leave_main() or self._leave_small()
        if found is not None:
            self._named = found.id
        return found

    def _fill_main(self) -> None:
        self._filled = True
        share, kept = self._small_share, 0
        for number, entry in list(self._small.items()):
            if kept >= share:
                self._main[number] = self._small.pop(number)
                self._small_bytes -= entry.bytes
            kept += entry.bytes

    @property
    def _small_share(self) -> int:
        return int(self._most_bytes * SMALL)

    def _leave_small(self) -> E | None:
        for _ in range(len(self._small)):
            number, entry = next(iter(self._small.items()))
            if self._uses[number] >= PROMOTED_AT:
                del self._small[number]
                self._small_bytes -= entry.bytes
                self._main[number] = entry
                self._uses[number] = 0
            elif number in self._busy:
                self._small.move_to_end(number)
            else:
                return entry
        return None

    def _leave_main(self) -> E | None:
        # Every round takes a use from each, so that MOST_USES rounds find one unless all are busy.
        for _ in range((MAX_USES + 1) * len(self._main)):
            number, entry = next(iter(self._main.items()))
            if self._uses[number] == 0 and number not in self._busy:
                return entry
            self._uses[number] = max(0, min(self._uses[number], MAX_USES) - 1)
            self._main.move_to_end(number)
        return None

    def _haunt(self, entry: E) -> None:
        self._ghosts[entry.id] = entry.bytes
        self._ghost_bytes += entry.bytes
        while self._ghost_bytes > self._most_bytes * GHOSTS:
            self._ghost_bytes -= self._ghosts.popitem(last=False)[1]
