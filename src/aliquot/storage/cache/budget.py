"""A token bucket: so many bytes a second, a second's worth at once."""


class Budget:
    """Time is an argument; whoever calls holds the cache's lock. None: no bound."""

    def __init__(self, bytes_per_s: int | None, *, now: float) -> None:
        self._rate = bytes_per_s
        self._tokens = float(bytes_per_s or 0)
        self._last_s = now

    def wait_s(self, *, now: float) -> float:
        """How long until something may be taken; 0: now."""
        if not self._rate:
            return 0.0
        self._tokens = min(self._rate, self._tokens + (now - self._last_s) * self._rate)
        self._last_s = now
        return max(0.0, -self._tokens / self._rate)

    def take(self, taken_bytes: int) -> None:
        """It may go below nothing by one chunk, made up for by waiting: a chunk may be more than a second's."""
        if self._rate:
            self._tokens -= taken_bytes
