"""One side of handing weights from process to process by a file; run as a program: `give` or `take`.

The giver has them in its own memory and stays until its input ends; the taker reads them in full. Each prints a line
of JSON with its seconds.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def give(place: str, size: int) -> dict[str, Any]:
    weights = np.random.default_rng(3).random(size // 4, dtype=np.float32)
    began = time.perf_counter()
    with Path(place).open("wb") as file:
        weights.tofile(file)
    return {"seconds": time.perf_counter() - began, "sum": float(weights.sum())}


def take(place: str, size: int) -> dict[str, Any]:
    began = time.perf_counter()
    with Path(place).open("rb") as file:
        weights = np.fromfile(file, dtype=np.float32, count=size // 4)
    total = float(weights.sum())
    return {"seconds": time.perf_counter() - began, "sum": total}


def main() -> None:
    side, place, size = sys.argv[1:]
    said = (give if side == "give" else take)(place, int(size))
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
