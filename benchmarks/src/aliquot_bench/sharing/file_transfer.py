"""A program that is one side of handing weights over by a file: `give` or `take`.

The giver writes the weights from its memory and stays until its input ends. The taker reads all of them. Each prints a
line of JSON with its seconds.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def give(path: str, size: int) -> dict[str, Any]:
    weights = np.random.default_rng(3).random(size // 4, dtype=np.float32)
    began = time.perf_counter()
    with Path(path).open("wb") as file:
        weights.tofile(file)
    return {"seconds": time.perf_counter() - began, "sum": float(weights.sum())}


def take(path: str, size: int) -> dict[str, Any]:
    began = time.perf_counter()
    with Path(path).open("rb") as file:
        weights = np.fromfile(file, dtype=np.float32, count=size // 4)
    total = float(weights.sum())
    return {"seconds": time.perf_counter() - began, "sum": total}


def main() -> None:
    side, path, size = sys.argv[1:]
    answer = (give if side == "give" else take)(path, int(size))
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
