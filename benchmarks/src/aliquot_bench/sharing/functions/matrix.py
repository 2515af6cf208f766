"""A loop of matrix products that counts its iterations in windows of 100 ms of the machine's clock."""

import os
import time
from typing import Any

# A slice is part of one core, on which several threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # imported after the variable is set, which it reads

PER_SECOND = 10  # windows
SIZE = 96  # about 30 µs per iteration, so that an eighth of a device has hundreds per window
BORN = time.monotonic_ns()  # distinguishes sandboxes
LEFT, RIGHT = (np.random.default_rng(seed).random((SIZE, SIZE), dtype=np.float32) for seed in (1, 2))
PRODUCT = np.empty_like(LEFT)


def main(args: dict[str, Any]) -> dict[str, Any]:
    """Loop from the time `begin` for `seconds` or `turns` iterations, and note when `mark` of them are done."""
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
