"""Read the same file on the disk and through views, cold and warm, by `open` and by `cat`, in turn."""

import os
import secrets
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aliquot.core.units import GIB, MIB
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot_bench.base import BenchRequest
from aliquot_bench.result import MEASURED, BenchResult, Goal, ResultTable, at_least
from aliquot_bench.views.targets import ReadTarget, disk, view

FILE_BYTES, QUICK_BYTES = GIB, 128 * MIB
ROUNDS, QUICK_ROUNDS = 9, 3
SMALL_FILES, SMALL_BYTES = 200, 10_000
MIN_SPEED = 0.8  # as a part of the disk's speed
DISK, PASSED, PIECES = "the disk itself", "a view, passed through", "a view, in pieces"
READS = (("open", "cold"), ("open", "warm"), ("cat", "cold"), ("cat", "warm"))
_WRITE_BYTES = 4 * MIB


class ViewsBench:
    """The benchmark `views`."""

    assumed = MEASURED
    needs_data = False

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick
        self._bytes = QUICK_BYTES if request.quick else FILE_BYTES
        self._rounds = QUICK_ROUNDS if request.quick else ROUNDS
        self.steps = self._rounds + 1
        self._speeds: dict[tuple[str, str, str], list[float]] = {}  # MB/s, by target, way of reading, and cold or warm
        self._opens_us: dict[str, list[float]] = {}

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        on_step(f"{self._bytes / MIB:.0f} MiB are written and cached")
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aliquot-views-", dir="/var/tmp")))
            self._write(folder / "origin")
            passed = stack.enter_context(view(PASSED, folder, "passed")) if os.geteuid() == 0 else None
            pieces = stack.enter_context(view(PIECES, folder, "pieces"))
            on_disk = disk(DISK, folder, pieces)
            targets = [on_disk, *([passed] if passed is not None else []), pieces]
            for number in range(self._rounds):
                on_step(f"round {number + 1}")
                for target in targets[number % len(targets) :] + targets[: number % len(targets)]:
                    self._measure(target, on_disk)
        return BenchResult("views", self._quick, self._goals(), [self._table()], self.assumed)

    def draw(self, path: Path) -> None:
        rounds = [float(number + 1) for number in range(self._rounds)]
        panels = [
            PlotPanel(
                f"{how}, {state}",
                "round",
                "MB/s",
                [
                    PlotLine(name, rounds, values)
                    for (name, *read), values in self._speeds.items()
                    if read == [how, state]
                ],
            )
            for how, state in READS
        ]
        draw_panels(panels, "A cached file through a view", path, columns=2)

    def _write(self, origin: Path) -> None:
        (origin / "small").mkdir(parents=True)
        with (origin / "large").open("wb") as file:
            for _ in range(self._bytes // _WRITE_BYTES):
                file.write(secrets.token_bytes(_WRITE_BYTES))
            os.fsync(file.fileno())
        for number in range(SMALL_FILES):
            (origin / "small" / f"{number}").write_bytes(secrets.token_bytes(SMALL_BYTES))

    def _measure(self, target: ReadTarget, on_disk: ReadTarget) -> None:
        for how, state in READS:
            if state == "cold":
                target.request("forget", target.large)
                on_disk.request("forget", target.disk_path)
            taken_s = target.request(how, target.large)
            self._speeds.setdefault((target.name, how, state), []).append(self._bytes / taken_s / 1e6)
        target.request("opens", target.small)  # not counted, because the first opens look the files up
        self._opens_us.setdefault(target.name, []).append(target.request("opens", target.small) * 1e6)

    # --- goals and tables ----------------------------------------------------------------------------------

    def _goals(self) -> list[Goal]:
        name = PASSED if any(key[0] == PASSED for key in self._speeds) else PIECES
        return [
            at_least(f"{how}, {state}: {name}", self._share(name, how, state), MIN_SPEED, "of the disk's speed")
            for how, state in READS
        ]

    def _share(self, name: str, how: str, state: str) -> float:
        """Return the median of the rounds' ratios to the disk. The load of the machine changes between rounds."""
        pairs = zip(self._speeds[name, how, state], self._speeds[DISK, how, state], strict=True)
        return statistics.median(mine / disks for mine, disks in pairs)

    def _table(self) -> ResultTable:
        rows: list[list[str | float | None]] = []
        for name, opens_us in self._opens_us.items():
            speeds = [statistics.median(self._speeds[name, how, state]) for how, state in READS]
            rows.append([name, *speeds, statistics.median(opens_us)])
        columns = ["where", *(f"{how}, {state} (MB/s)" for how, state in READS), "open and close (µs)"]
        return ResultTable(f"A file of {self._bytes / MIB:.0f} MiB, median of {self._rounds} rounds", columns, rows)
