"""The number of chunks fetched at once for a reader that reads a file as it arrives.

Where one connection fills the link, one chunk after the other is best. The reader waits for the first chunk, and every
other one beside it delays that one. Where a single connection is slow, as with an object store, more connections bring
more bytes. The case is not known in advance, so it is measured: one round with twice as many, kept if it was faster.
"""

MIN_SPEEDUP = 1.2  # a round with more chunks at once must be this many times faster to be kept
ROUNDS_BETWEEN_TRIALS = 16  # links change, so the measurement is repeated


class ChunkParallelism:
    """The number of chunks at once for one link. It measures one transfer at a time."""

    def __init__(self, max_chunks: int) -> None:
        self.chunks = 1
        self._max_chunks = max_chunks
        self._previous: tuple[int, float] | None = None  # chunks at once and speed of the round before the trial
        self._rounds_left = 0  # until the next trial
        self._transfer: int | None = None  # number of the measured transfer
        self._round_start_s = 0.0  # when a chunk of it arrived
        self._round_bytes = self._round_chunks = 0  # since then

    def arrived(self, transfer: int, length: int, *, now: float) -> None:
        """Count a chunk of a transfer that has more chunks to fetch."""
        if self._transfer is None:
            self._transfer = transfer
            self._start_round(now)
        elif self._transfer == transfer:
            self._round_bytes += length
            self._round_chunks += 1
            if self._round_chunks == 2 * self.chunks + 2:
                self.measured(self._round_bytes / max(now - self._round_start_s, 1e-9))
                self._start_round(now)

    def stop_measuring(self, transfer: int) -> None:
        """Forget a transfer whose speed says nothing of the link: it ended, or its reader is slower than the link."""
        if self._transfer == transfer:
            self._transfer = None

    def measured(self, bytes_per_s: float) -> None:
        """Take the speed of one round, during which there was always another chunk to fetch."""
        if self._rounds_left:
            self._rounds_left -= 1
            if not self._rounds_left:  # start the trial at half, which shows whether the current number pays
                self.chunks, self._previous = max(1, self.chunks // 2), None
            return
        if self._previous is not None and bytes_per_s < MIN_SPEEDUP * self._previous[1]:
            self._keep(self._previous[0])
        elif self.chunks == self._max_chunks:
            self._keep(self.chunks)
        else:
            self._previous = self.chunks, bytes_per_s
            self.chunks = min(2 * self.chunks, self._max_chunks)

    def _start_round(self, now: float) -> None:
        self._round_start_s, self._round_bytes, self._round_chunks = now, 0, 0

    def _keep(self, chunks: int) -> None:
        self.chunks, self._previous, self._rounds_left = chunks, None, ROUNDS_BETWEEN_TRIALS
