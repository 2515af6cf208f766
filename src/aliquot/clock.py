"""The wall clock in milliseconds since the epoch, as records, ids and the command line count time."""

import time


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
