"""A matrix loop that counts its own turns in windows of 100 ms of the machine's clock, for a time or for so many."""

import os
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a slice is of one core: more threads would wait for each other

import numpy as np  # it reads the variable

PER_SECOND = 10  # windows
SIZE = 96  # some 30 µs a turn: a window of an eighth of a device has hundreds
BORN = time.monotonic_ns()  # tells one sandbox from another
LEFT, RIGHT = (np.random.default_rng(seed).random((SIZE, SIZE), dtype=np.float32) for seed in (1, 2))
PRODUCT = np.empty_like(LEFT)


def main(args: dict[str, Any]) -> dict[str, Any]:
    """`begin` is the moment to begin at, `seconds` and `turns` where to end; when `mark` turns were done is noted."""
    time.sleep(max(0.0, args.get("begin", 0) - time.monotonic()))
    now = began = time.monotonic()
    until = now + args.get("seconds", 1e9)
    turns, mark, done = args.get("turns", 1 << 62), args.get("mark"), 0
    marked = None
    counts: dict[int, int] = {}
    while done < turns and now < until:
        np.matmul(LEFT, RIGHT, out=PRODUCT)
        done += 1
        now = time.monotonic()
        if done == mark:
            marked = now
        window = int(now * PER_SECOND)
        counts[window] = counts.get(window, 0) + 1
    windows = range(min(counts, default=0), max(counts, default=-1) + 1)
    return {
        "began": began,
        "ended": now,
        "marked": marked,
        "turns": done,
        "first": windows.start,
        "counts": [counts.get(window, 0) for window in windows],
        "born": BORN,
    }
