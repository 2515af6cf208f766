"""Overhead: a small training run alone on a core, and in a slice that is the whole of the same core."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot_bench.environments import MeasurementError
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_most
from aliquot_bench.sharing.elastic import change
from aliquot_bench.sharing.part import SharingSizes
from aliquot_bench.sharing.platform import FUNCTIONS, SharingPlatform, host_device

# The same file, interpreter and core, after a first run that is not counted, as in the sandbox.
BARE = """
import json, os, runpy, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
main = runpy.run_path(sys.argv[1])["main"]
main({"steps": int(sys.argv[3]) // 10})
print(json.dumps(main({"steps": int(sys.argv[3])})))
"""
# KNIX, table 2: seconds on a bare and on a virtual GPU.
PUBLISHED = {"TensorFlow": (298.2, 300.0), "PyTorch": (189.1, 222.3), "MXNet": (39.32, 33.50)}
# A bare run that waits for its core competes with other work, over which a slice has priority. It is not comparable.
MAX_WAITED_PERCENT = 2
BARE_RUN, IN_SLICE, AS_CALLED = "bare", "in a full slice", "in a full slice, the whole call"


class OverheadPart:
    """The part `overhead`."""

    name = "overhead"
    on_device = True

    def __init__(self, sizes: SharingSizes) -> None:
        self._sizes = sizes
        self._seconds: dict[str, list[float]] = {BARE_RUN: [], IN_SLICE: [], AS_CALLED: []}
        self._waited: dict[str, list[float]] = {BARE_RUN: [], IN_SLICE: [], AS_CALLED: []}  # percentage of each time
        self.steps = sizes.training_pairs

    def run(self, on_step: Callable[[str], None]) -> str:
        with host_device("hard") as platform:
            platform.deploy("training", "training", 1.0)
            platform.call("training", {"steps": self._sizes.training_steps // 10})
            for number in range(self._sizes.training_pairs):
                on_step(f"overhead, pair {number + 1}")
                for sliced in (number % 2 == 0, number % 2 == 1):  # alternate which is first
                    if sliced:
                        self._sliced(platform)
                    else:
                        self._bare()
            return platform.unenforced

    def _bare(self) -> None:
        core = max(os.sched_getaffinity(0))  # the core that the driver uses for a single device
        program = str(FUNCTIONS / "training.py")
        command = [sys.executable, "-c", BARE, program, str(core), str(self._sizes.training_steps)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
        if done.returncode:
            raise MeasurementError(f"the bare training run failed: {done.stderr.strip()[-200:]}")
        answer = json.loads(done.stdout)
        self._record(BARE_RUN, answer["seconds"], answer["cpu_seconds"])

    def _sliced(self, platform: SharingPlatform) -> None:
        began = time.perf_counter()
        answer = platform.call("training", {"steps": self._sizes.training_steps})
        self._record(AS_CALLED, time.perf_counter() - began, answer["cpu_seconds"])
        self._record(IN_SLICE, answer["seconds"], answer["cpu_seconds"])

    def _record(self, what: str, seconds: float, cpu_seconds: float) -> None:
        self._seconds[what].append(seconds)
        self._waited[what].append(max(0.0, PERCENT * (1 - cpu_seconds / seconds)))

    def _overhead(self, what: str) -> float:
        """Return by how many percent a run takes longer than the bare run."""
        return change(median(self._seconds[what]), median(self._seconds[BARE_RUN]))

    def goals(self) -> list[Goal]:
        name, waited = "overhead of a full slice: the whole call against the bare run", median(self._waited[BARE_RUN])
        if waited > MAX_WAITED_PERCENT:
            return [at_most(f"{name} (void: the bare run waited {waited:.0f} % of its time)", None, 2, "%")]
        return [at_most(name, self._overhead(AS_CALLED), 2, "%")]

    def tables(self) -> list[ResultTable]:
        rows: list[list[str | float | None]] = [
            [
                *(what, median(seconds), min(seconds), max(seconds), median(self._waited[what])),
                None if what == BARE_RUN else self._overhead(what),
            ]
            for what, seconds in self._seconds.items()
        ]
        for name, (bare, shared) in PUBLISHED.items():
            rows.append([f"KNIX (published), {name}: bare", bare, None, None, None, None])
            rows.append([f"KNIX (published), {name}: shared", shared, None, None, None, change(shared, bare)])
        title = (
            f"Overhead: a network with one hidden layer trained on made digits, {self._sizes.training_steps} batches;"
            f" {self._sizes.training_pairs} pairs in turn; overhead is (shared - bare) / bare of the medians"
        )
        return [ResultTable(title, ["", "median s", "least", "most", "of it waiting, %", "overhead, %"], rows)]

    def panels(self) -> list[PlotPanel]:
        lines = [PlotLine(what, range(1, len(seconds) + 1), seconds) for what, seconds in self._seconds.items()]
        return [PlotPanel("Overhead: training, pair by pair", "pair", "s", lines)]
