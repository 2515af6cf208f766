"""A function, deployed from this file, that counts its loop iterations in windows of 100 ms of the machine's clock."""

import time
from typing import Any

PER_SECOND = 10


def main(args: dict[str, Any]) -> dict[str, Any]:
    until = time.monotonic() + args.get("seconds", 0)
    counts: dict[int, int] = {}
    while (now := time.monotonic()) < until:
        for _ in range(200):
            pass
        window = int(now * PER_SECOND)
        counts[window] = counts.get(window, 0) + 1
    return {"windows": [[window, count] for window, count in counts.items()]}
