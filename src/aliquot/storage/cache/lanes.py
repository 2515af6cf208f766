"""How many chunks of a file are on their way at once for somebody who reads it as it comes. Pure.

Where one connection fills the link, one chunk after the other is best: the reader waits for the first of them, and
every other beside it makes that one later. Where a connection is slow by itself, as an object store's is, more of them
bring more. Nobody says which it is, so it is tried: a round with twice as many, which are kept if it was faster.
"""

FASTER = 1.2  # times the bytes a second that a round with more of them must bring
STAYS = 16  # rounds, before it is tried again: links change


class Lanes:
    """Of one link, for all who read from there; one of them at a time is timed."""

    def __init__(self, most: int) -> None:
        self.number = 1
        self._most = most
        self._before: tuple[int, float] | None = None  # what was tried last, and how fast that was
        self._stays = 0
        self._timed: int | None = None  # the transfer
        self._began_s = 0.0  # with the arrival of a chunk of it
        self._bytes = self._chunks = 0  # since then

    def arrived(self, transfer: int, length: int, *, now: float) -> None:
        """A chunk of a transfer that has more to bring."""
        if self._timed is None:
            self._timed = transfer
            self._begin(now)
        elif self._timed == transfer:
            self._bytes += length
            self._chunks += 1
            if self._chunks == 2 * self.number + 2:
                self.measured(self._bytes / max(now - self._began_s, 1e-9))
                self._begin(now)

    def left(self, transfer: int) -> None:
        """It has no more to bring, or is read no faster than it comes: it says nothing of the link."""
        if self._timed == transfer:
            self._timed = None

    def measured(self, bytes_per_s: float) -> None:
        """How fast a round was in which there was always more to bring."""
        if self._stays:
            self._stays -= 1
            if not self._stays:  # with half as many: either way it shows whether more are worth it
                self.number, self._before = max(1, self.number // 2), None
            return
        if self._before is not None and bytes_per_s < FASTER * self._before[1]:
            self._stay(self._before[0])
        elif self.number == self._most:
            self._stay(self.number)
        else:
            self._before = self.number, bytes_per_s
            self.number = min(2 * self.number, self._most)

    def _begin(self, now: float) -> None:
        self._began_s, self._bytes, self._chunks = now, 0, 0

    def _stay(self, number: int) -> None:
        self.number, self._before, self._stays = number, None, STAYS
