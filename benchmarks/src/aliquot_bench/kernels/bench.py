"""The benchmark `kernels`. A part that cannot be measured is listed with its reason, and the other parts still run."""

from collections.abc import Callable
from pathlib import Path

from aliquot.sim.plots import draw_panels
from aliquot.testing.client import CallError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.kernels.alone import AlonePart
from aliquot_bench.kernels.contention import ContentionPart
from aliquot_bench.kernels.counters import CountersPart
from aliquot_bench.kernels.halves import HalvesPart
from aliquot_bench.kernels.part import QUICK, KernelSizes, KernelsPart
from aliquot_bench.kernels.simulated import SimulatedPart
from aliquot_bench.kernels.starts import StartsPart
from aliquot_bench.result import MEASURED, BenchResult, Goal, ResultTable, at_least

PARTS: tuple[Callable[[KernelSizes], KernelsPart], ...] = (
    CountersPart,
    AlonePart,
    StartsPart,
    HalvesPart,
    SimulatedPart,
    ContentionPart,
)


class KernelsBench:
    """The benchmark `kernels`."""

    assumed = MEASURED
    needs_data = False

    def __init__(self, request: BenchRequest, sizes: KernelSizes | None = None) -> None:
        self._quick = request.quick
        self._parts = [make(sizes or (QUICK if request.quick else KernelSizes())) for make in PARTS]
        self._left_out: dict[str, str] = {}
        self.steps = sum(part.steps for part in self._parts)

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        goals: list[Goal] = []
        tables: list[ResultTable] = []
        for part in self._parts:
            try:
                part.run(on_step)
            except (MeasurementError, CallError) as error:
                self._left_out[part.name] = str(error)
                goals.append(at_least(f"{part.name}: it could not be measured", None, 1))
                continue
            goals += part.goals()
            tables += part.tables()
        if self._left_out:
            tables.append(ResultTable("Left out", ["", "why"], [[name, why] for name, why in self._left_out.items()]))
        return BenchResult("kernels", self._quick, goals, tables, self.assumed)

    def draw(self, path: Path) -> None:
        panels = [panel for part in self._parts if part.name not in self._left_out for panel in part.panels()]
        draw_panels(panels, "Kernels as a service", path, columns=3)
