"""One side of handing weights from process to process; run as a program: `give` or `take`, `file` or `memory`.

The giver has them in its own memory and stays until its input ends; the taker reads them in full. Each prints a line
of JSON with its seconds.
"""

import json
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def give(way: str, place: str, size: int) -> dict[str, Any]:
    weights = np.random.default_rng(3).random(size // 4, dtype=np.float32)
    began = time.perf_counter()
    if way == "file":
        with Path(place).open("wb") as file:
            weights.tofile(file)
    else:
        fd = os.memfd_create("weights")
        os.ftruncate(fd, weights.nbytes)
        shared = np.frombuffer(mmap.mmap(fd, weights.nbytes), dtype=np.float32)
        shared[:] = weights
        place = f"/proc/{os.getpid()}/fd/{fd}"
    return {"seconds": time.perf_counter() - began, "place": place, "sum": float(weights.sum())}


def take(way: str, place: str, size: int) -> dict[str, Any]:
    began = time.perf_counter()
    if way == "file":
        with Path(place).open("rb") as file:
            weights = np.fromfile(file, dtype=np.float32)
    else:
        fd = os.open(place, os.O_RDONLY)
        weights = np.frombuffer(mmap.mmap(fd, size // 4 * 4, prot=mmap.PROT_READ), dtype=np.float32)
    total = float(weights.sum())
    return {"seconds": time.perf_counter() - began, "place": place, "sum": total}


def main() -> None:
    side, way, place, size = sys.argv[1:]
    said = (give if side == "give" else take)(way, place, int(size))
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
