"""Data sharing: weights handed over by a file and by shared memory, and read in full.

Two plain processes use the file, and pay for nothing else. Two functions in different sandboxes use the shared memory,
with the cost of a call from one to the other.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from aliquot.core.units import MB
from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot_bench.environments import MeasurementError, scratch
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_least
from aliquot_bench.sharing.part import SharingSizes
from aliquot_bench.sharing.weights_app import weights_app

WAYS = ("file", "memory")
DIVISORS = (8, 4, 2, 1)  # the size of the weights is divided by these


class TransferTimes(Struct, frozen=True):
    """The seconds to hand weights over and to read them."""

    give_s: float
    take_s: float

    @property
    def whole_s(self) -> float:
        return self.give_s + self.take_s


class DataPart:
    """The part `data sharing`."""

    name = "data sharing"
    on_device = False

    def __init__(self, sizes: SharingSizes) -> None:
        self._repetitions = sizes.repetitions
        self._sizes = [sizes.weights_bytes // part for part in DIVISORS]
        self._handed: dict[tuple[str, int], list[TransferTimes]] = {}
        self._same = False  # whether a sandbox passes the same object
        self.steps = sizes.repetitions

    def run(self, on_step: Callable[[str], None]) -> str:
        with weights_app(self._sizes[-1]) as app:
            for number in range(self._repetitions):
                on_step(f"data sharing, repetition {number + 1}: up to {self._sizes[-1] / MB:g} MB")
                for size in self._sizes:
                    self._handed.setdefault(("file", size), []).append(transfer_by_file(size))
                    self._handed.setdefault(("memory", size), []).append(TransferTimes(*app.between_sandboxes(size)))
            self._same = app.same_object_inside(self._sizes[-1])
        return ""

    def _typical(self, way: str, size: int) -> TransferTimes:
        handed = self._handed[way, size]
        return TransferTimes(median(each.give_s for each in handed), median(each.take_s for each in handed))

    def goals(self) -> list[Goal]:
        size = self._sizes[-1]
        file_s, memory_s = (self._typical(way, size).whole_s for way in WAYS)
        faster = PERCENT * (1 - memory_s / file_s)
        return [
            at_least(f"data: {size / MB:g} MB by shared memory, faster than by a file", faster, 26, "%"),
            at_least("data: in process it is the same object (1: yes)", float(self._same), 1),
        ]

    def tables(self) -> list[ResultTable]:
        rows: list[list[str | float | None]] = []
        for size in self._sizes:
            file_s = self._typical("file", size).whole_s
            for way in WAYS:
                found = self._typical(way, size)
                faster = None if way == "file" else PERCENT * (1 - found.whole_s / file_s)
                rows.append([size / MB, way, found.give_s, found.take_s, found.whole_s, faster])
        rows.append(["550 (published, KNIX)", "the sandbox's files against a shared volume", None, None, None, "14-26"])
        title = (
            "Data sharing: weights handed over and read in full, by a file between plain processes, by shared memory"
            f" from function to function; medians of {self._repetitions}"
        )
        return [ResultTable(title, ["MB", "by", "give, s", "take and read, s", "both, s", "faster, %"], rows)]

    def panels(self) -> list[PlotPanel]:
        megabytes = [size / MB for size in self._sizes]
        lines = [PlotLine(way, megabytes, [self._typical(way, size).whole_s for size in self._sizes]) for way in WAYS]
        return [PlotPanel("Data sharing: given, taken and read", "MB", "s", lines)]


def transfer_by_file(size: int) -> TransferTimes:
    """Hand weights over by a file between two new processes, and check that their sums are equal."""
    with scratch() as folder, _side("give", folder / "weights", size) as giver:
        given = _line(giver)
        with _side("take", folder / "weights", size) as taker:
            taken = _line(taker)
            taker.communicate()
        giver.communicate()
    if given["sum"] != taken["sum"]:
        raise MeasurementError("by file: what was read is not what was given")
    return TransferTimes(given["seconds"], taken["seconds"])


def _side(side: str, path: Path, size: int) -> "subprocess.Popen[str]":
    program = str(Path(__file__).with_name("file_transfer.py"))
    # -P keeps this folder out of the module path, where `platform.py` would hide the library's module.
    command = [sys.executable, "-P", program, side, str(path), str(size)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)  # noqa: S603 - a fixed command


def _line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        _, error = process.communicate()
        raise MeasurementError(f"weights could not be handed over: {error.strip()[-200:]}")
    answer: dict[str, Any] = json.loads(line)
    return answer
