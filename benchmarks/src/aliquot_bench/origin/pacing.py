"""How fast an origin may send: one allowance for all of its connections, as one cable has."""

BURST_S = 0.003  # of sending that is let through at once: sleeps are no finer


class Pacer:
    """`reserve` says how long to wait before so many bytes may be sent. Time is an argument, locking the caller's."""

    def __init__(self, bytes_per_s: float) -> None:
        self._each_s = 1 / bytes_per_s
        self._free_s = 0.0  # when everything that was reserved has been sent

    def reserve(self, size: int, *, now: float) -> float:
        self._free_s = max(self._free_s, now) + size * self._each_s
        return max(0.0, self._free_s - now - BURST_S)
