"""S3-FIFO (Yang et al., SOSP 2023): three FIFO queues that soon evict entries which are used only once.

New entries wait in a small queue. An entry that is used twice more moves to the main queue. Any other is evicted, and
its number enters a ghost queue. An entry that comes back while its number is there goes directly to the main queue. An
entry at the front of the main queue that was used since its last turn goes to the back, with one use less.

The paper's cache has a fixed size. This one takes the largest number of bytes that were present at once as its size. At
the first eviction, entries beyond the small queue's share move to the main queue.
"""

from collections import OrderedDict

from aliquot.core.interfaces import E, Eviction, Params

SMALL = 0.1  # the small queue's fraction of the bytes
GHOSTS = 0.9  # bytes of evicted entries whose numbers are kept, as a fraction of the size
PROMOTED_AT = 2  # uses in the small queue after which an entry moves to the main queue
MAX_USES = 3  # more uses are not counted in the main queue


class S3Fifo(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._small: OrderedDict[int, E] = OrderedDict()
        self._main: OrderedDict[int, E] = OrderedDict()
        self._uses: dict[int, int] = {}  # since it was added, or since its last turn
        self._busy: set[int] = set()  # in use; they stay in their queue and cannot be evicted
        self._ghosts: OrderedDict[int, int] = OrderedDict()  # bytes by number
        self._bytes = 0
        self._small_bytes = 0
        self._ghost_bytes = 0
        self._max_bytes = 0  # present at once so far, taken as the size
        self._named: int | None = None
        self._filled = False

    def add(self, entry: E, *, now: float) -> None:
        self._busy.discard(entry.id)
        if entry.id in self._uses:
            self._uses[entry.id] += 1
            return
        self._uses[entry.id] = 0
        self._bytes += entry.bytes
        self._max_bytes = max(self._max_bytes, self._bytes)
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
            self._add_ghost(entry)

    def victim(self, *, now: float) -> E | None:
        self._named = None
        found: E | None = None
        if not self._filled:
            self._fill_main()
        if len(self._busy) < len(self._uses):
            main_bytes = self._bytes - self._small_bytes
            if main_bytes <= self._max_bytes - self._small_share:
                found = self._victim_of_small()
            found = found or self._victim_of_main() or self._victim_of_small()
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
        return int(self._max_bytes * SMALL)

    def _victim_of_small(self) -> E | None:
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

    def _victim_of_main(self) -> E | None:
        # Every round takes a use from each entry, so this finds one unless all are busy.
        for _ in range((MAX_USES + 1) * len(self._main)):
            number, entry = next(iter(self._main.items()))
            if self._uses[number] == 0 and number not in self._busy:
                return entry
            self._uses[number] = max(0, min(self._uses[number], MAX_USES) - 1)
            self._main.move_to_end(number)
        return None

    def _add_ghost(self, entry: E) -> None:
        self._ghosts[entry.id] = entry.bytes
        self._ghost_bytes += entry.bytes
        while self._ghost_bytes > self._max_bytes * GHOSTS:
            self._ghost_bytes -= self._ghosts.popitem(last=False)[1]
