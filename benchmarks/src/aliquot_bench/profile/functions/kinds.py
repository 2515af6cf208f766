"""Six kinds of work, without any library, each for so many seconds."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE = 24
FRAME_S = 1 / 60


def matrix(until_s: float) -> None:
    """Multiply small matrices."""
    left = [[float(row * column % 7) for column in range(SIZE)] for row in range(SIZE)]
    while time.monotonic() < until_s:
        left = [[sum(a * b for a, b in zip(row, column, strict=True)) % 7 for column in zip(*left)] for row in left]  # noqa: B905


def training(until_s: float) -> None:
    """Fit a line by gradient descent, with up to 20 MB of examples."""
    kept: list[bytearray] = []
    slope = 0.0
    while time.monotonic() < until_s:
        kept = [*kept[-99:], bytearray(200_000)]
        for x in range(2000):
            slope -= 1e-9 * (slope * x - 3 * x) * x


def inference(until_s: float) -> None:
    """Answer requests in bursts with pauses."""
    while time.monotonic() < until_s:
        for _ in range(20):
            sum(number * number for number in range(3000))
        time.sleep(0.2)


def frames(until_s: float) -> None:
    """Draw a picture sixty times in a second."""
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        bytes(random.randrange(256) for _ in range(2000))
        time.sleep(max(0.0, FRAME_S - (time.monotonic() - began_s)))


def stencil(until_s: float) -> None:
    """Average each cell of a row with its neighbours."""
    cells = [float(number % 10) for number in range(2000)]
    while time.monotonic() < until_s:
        cells = [(cells[i - 1] + cells[i] + cells[(i + 1) % len(cells)]) / 3 for i in range(len(cells))]


def files(until_s: float) -> None:
    """Write and read files."""
    path = Path("/tmp/part")  # noqa: S108 - of the sandbox alone
    while time.monotonic() < until_s:
        path.write_bytes(b"x" * 300_000)
        path.read_bytes()
        time.sleep(0.002)


KINDS: dict[str, Callable[[float], None]] = {
    "matrix": matrix,
    "training": training,
    "inference": inference,
    "frames": frames,
    "stencil": stencil,
    "files": files,
}


def main(args: dict[str, Any]) -> dict[str, Any]:
    KINDS[args["kind"]](time.monotonic() + args["seconds"])
    return {}
