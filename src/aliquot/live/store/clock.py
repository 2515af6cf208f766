"""The wall clock in milliseconds since the epoch, as records and the store count time."""

import time


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
