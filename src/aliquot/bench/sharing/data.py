"""Data sharing: weights handed from process to process, by a file and by shared memory, and read in full."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from aliquot.bench.environments import PeerError
from aliquot.bench.latency.targets import scratch
from aliquot.bench.result import Goal, Rows, at_least
from aliquot.bench.sharing.part import Sizes
from aliquot.bench.sharing.windows import POINTS
from aliquot.sim.plots import Line, Panel

WAYS = ("file", "memory")
PARTS = (8, 4, 2, 1)  # of all the weights: an eighth, ... all
MB = 1e6
MISSING = "the platform does not pass values between sandboxes by shared memory yet"
NO_GROUPS = "the platform has no groups of functions in one sandbox yet"


class Handed(Struct, frozen=True):
    give_s: float
    take_s: float

    @property
    def whole_s(self) -> float:
        return self.give_s + self.take_s


class Data:
    name = "data sharing"
    on_device = False

    def __init__(self, sizes: Sizes) -> None:
        self._repetitions = sizes.repetitions
        self._sizes = [sizes.weights_bytes // part for part in PARTS]
        self._handed: dict[tuple[str, int], list[Handed]] = {}
        self.steps = sizes.repetitions

    def run(self, on_step: Callable[[str], None]) -> str:
        for number in range(self._repetitions):
            on_step(f"data sharing, repetition {number + 1}: up to {self._sizes[-1] / MB:g} MB")
            for size in self._sizes:
                for way in WAYS:
                    self._handed.setdefault((way, size), []).append(hand_over(way, size))
        return ""

    def _typical(self, way: str, size: int) -> Handed:
        handed = self._handed[way, size]
        return Handed(median(each.give_s for each in handed), median(each.take_s for each in handed))

    def goals(self) -> list[Goal]:
        megabytes = f"{self._sizes[-1] / MB:g} MB"
        return [
            at_least(f"data: {megabytes} by shared memory, faster than by a file ({MISSING})", None, 26, "%"),
            at_least(f"data: in process it is the same object ({NO_GROUPS})", None, 1),
        ]

    def tables(self) -> list[Rows]:
        rows: list[list[str | float | None]] = []
        for size in self._sizes:
            file_s = self._typical("file", size).whole_s
            for way in WAYS:
                found = self._typical(way, size)
                faster = None if way == "file" else POINTS * (1 - found.whole_s / file_s)
                rows.append([size / MB, way, found.give_s, found.take_s, found.whole_s, faster])
        rows.append(["550 (published, KNIX)", "the sandbox's files against a shared volume", None, None, None, "14-26"])
        title = (
            "Data sharing: the mechanism alone, between two plain processes, weights read in full; medians of"
            f" {self._repetitions}. No figure for more than that: {MISSING}, and {NO_GROUPS}"
        )
        return [Rows(title, ["MB", "by", "give, s", "take and read, s", "both, s", "faster, %"], rows)]

    def panels(self) -> list[Panel]:
        megabytes = [size / MB for size in self._sizes]
        lines = [Line(way, megabytes, [self._typical(way, size).whole_s for size in self._sizes]) for way in WAYS]
        return [Panel("Data sharing: given, taken and read (mechanism alone)", "MB", "s", lines)]


def hand_over(way: str, size: int) -> Handed:
    """Once, between two new processes; the sum of what was read is compared with that of what was given."""
    with scratch() as folder, _side("give", way, str(folder / "weights"), size) as giver:
        given = _line(giver)
        with _side("take", way, given["place"], size) as taker:
            taken = _line(taker)
            taker.communicate()
        giver.communicate()
    if given["sum"] != taken["sum"]:
        raise PeerError(f"by {way}: what was read is not what was given")
    return Handed(given["seconds"], taken["seconds"])


def _side(side: str, way: str, place: str, size: int) -> "subprocess.Popen[str]":
    program = str(Path(__file__).with_name("handover.py"))
    # -P: this folder is not where modules are looked for, or ours would hide the library's of the same name.
    command = [sys.executable, "-P", program, side, way, place, str(size)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)  # noqa: S603 - our own arguments


def _line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        _, error = process.communicate()
        raise PeerError(f"weights could not be handed over: {error.strip()[-200:]}")
    said: dict[str, Any] = json.loads(line)
    return said
