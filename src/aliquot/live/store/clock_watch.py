"""Watch the wall clock, because records are deleted by their age.

A clock that jumps ahead by days would make every record old at once. After a jump no record is deleted by age for a
while, so that the clock can be corrected. Limits on size hold all the same.
"""

MAX_DRIFT_MS = 60_000  # between two looks; more is a jump
MAX_GAP_MS = 86_400_000  # since the newest record at the start of the server; more may be a clock that is ahead
PAUSE_S = 3600


class ClockWatch:
    """Compares the wall clock with a steady one, which counts seconds and never jumps."""

    def __init__(self, *, newest_ms: int | None, wall_ms: int, steady_s: float) -> None:
        """Begin at the start of a server. `newest_ms` is the time of its newest record, if it has one."""
        self._offset_ms = wall_ms - steady_s * 1000
        gap_ms = 0 if newest_ms is None else wall_ms - newest_ms
        self._trusted_from_s = steady_s if -MAX_DRIFT_MS <= gap_ms <= MAX_GAP_MS else steady_s + PAUSE_S
        self.jump_ms = 0 if self._trusted_from_s == steady_s else gap_ms  # the last jump, for the log

    def is_trusted(self, *, wall_ms: int, steady_s: float) -> bool:
        """Return whether ages can be judged by the wall clock now. Call it once in a while."""
        offset_ms = wall_ms - steady_s * 1000
        if abs(offset_ms - self._offset_ms) > MAX_DRIFT_MS:
            self.jump_ms = round(offset_ms - self._offset_ms)
            self._trusted_from_s = steady_s + PAUSE_S
        self._offset_ms = offset_ms
        return steady_s >= self._trusted_from_s
