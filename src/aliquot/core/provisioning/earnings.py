"""Earnings of what was held for a flow: the last holds, and those that were made on paper only."""

MAX_HOLDS = 20  # that count


class Earnings:
    """The last holds of a flow, the newest as the lowest bit. A hold on paper begins and ends without a sandbox."""

    __slots__ = ("_bits", "_count", "_paper")

    def __init__(self) -> None:
        self._bits = 0
        self._count = 0
        self._paper: tuple[int, float] | None = None  # arrivals before it, and when it ends

    def ended(self, *, used: bool) -> None:
        """Count a hold that has ended: a call used its sandbox, or none did."""
        self._bits = (self._bits << 1 | used) & ((1 << MAX_HOLDS) - 1)
        self._count = min(MAX_HOLDS, self._count + 1)

    @property
    def used_part(self) -> float | None:
        """Return the part of the last holds that was used, or None while there are too few."""
        return None if self._count < MAX_HOLDS else self._bits.bit_count() / MAX_HOLDS

    def on_paper(self, arrivals: int, now: float, until: float, *, wanted: bool) -> None:
        """Follow a hold that would have been made. `arrivals` is the number of the flow's calls so far."""
        if self._paper is not None:
            before, ends = self._paper
            if arrivals > before or now >= ends:
                self.ended(used=arrivals > before)
                self._paper = None
        if self._paper is None and wanted:
            self._paper = (arrivals, until)
