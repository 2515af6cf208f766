"""Run the seven parts of the benchmark on a real server with one virtual device.

On a machine that cannot enforce slices, the same is measured, but every table says so and no goal that needs slices is
met. A part that cannot be measured is listed with its reason, and the other parts still run.
"""

import os
import platform as machine
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from aliquot.sim.plots import draw_panels
from aliquot.testing.client import CallError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least
from aliquot_bench.sharing.data import DataPart
from aliquot_bench.sharing.elastic import ElasticPart
from aliquot_bench.sharing.isolation import IsolationPart
from aliquot_bench.sharing.memory import MemoryPart
from aliquot_bench.sharing.overhead import OverheadPart
from aliquot_bench.sharing.packing import PackingPart
from aliquot_bench.sharing.part import QUICK, SharingPart, SharingSizes
from aliquot_bench.sharing.platform import check_numpy
from aliquot_bench.sharing.scaling import ScalingPart

PARTS: tuple[Callable[[SharingSizes], SharingPart], ...] = (
    IsolationPart,
    ElasticPart,
    OverheadPart,
    ScalingPart,
    MemoryPart,
    DataPart,
    PackingPart,
)
NOT_ENFORCED = "NOTHING IS ENFORCED HERE"


class SharingBench:
    """The benchmark `sharing`."""

    assumed = "a processor for the device, which the control group divides, otherwise measured on this machine"
    needs_data = False

    def __init__(self, request: BenchRequest, sizes: SharingSizes | None = None) -> None:
        check_numpy()
        self._quick = request.quick
        self._parts = [make(sizes or (QUICK if request.quick else SharingSizes())) for make in PARTS]
        self._left_out: dict[str, str] = {}
        self.steps = sum(part.steps for part in self._parts)

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        goals: list[Goal] = []
        tables: list[ResultTable] = []
        why_not = ""
        for part in self._parts:
            try:
                unenforced = part.run(on_step)
            except (MeasurementError, CallError) as error:
                self._left_out[part.name] = str(error)
                goals.append(at_least(f"{part.name}: it could not be measured", None, 1))
                continue
            goals += annotate_goals(part.goals(), unenforced if part.on_device else "")
            tables += annotate_tables(part.tables(), unenforced if part.on_device else "")
            why_not = why_not or unenforced
        if self._left_out:
            tables.append(ResultTable("Left out", ["", "why"], [[name, why] for name, why in self._left_out.items()]))
        return BenchResult("sharing", self._quick, goals, [_setting(why_not), *tables], self.assumed)

    def draw(self, path: Path) -> None:
        panels = [panel for part in self._parts if part.name not in self._left_out for panel in part.panels()]
        draw_panels(panels, "Slices of one device: kept, lent and given back", path, columns=3)


def annotate_goals(goals: Sequence[Goal], unenforced: str) -> list[Goal]:
    """Return the goals, none of them met if slices were not enforced."""
    if not unenforced:
        return list(goals)
    return [replace(goal, name=f"{goal.name} ({NOT_ENFORCED.lower()})", met=False) for goal in goals]


def annotate_tables(tables: Sequence[ResultTable], unenforced: str) -> list[ResultTable]:
    """Return the tables, with a note in the titles if slices were not enforced."""
    return [replace(rows, title=f"{NOT_ENFORCED}: {rows.title}") for rows in tables] if unenforced else list(tables)


def _setting(unenforced: str) -> ResultTable:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    rows: list[list[str | float | None]] = [
        ["slices", f"{NOT_ENFORCED}: {unenforced}" if unenforced else "enforced, weight and quota"],
        ["machine", f"{cores} cores, Python {machine.python_version()}, Linux {machine.release()}"],
        ["load average at the end", load],
    ]
    return ResultTable("Where it was measured", ["", ""], rows)
