"""Measure deadlines and budgets: in simulations against other methods, decisions in one process, and a real server.

A part that cannot be measured is listed with its reason, and the other parts still run.
"""

from collections.abc import Callable
from pathlib import Path

from aliquot.sim.importers.files import check_files, needed_files
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.plan_picture import draw_plan, plan_at
from aliquot.sim.plots import draw_panels
from aliquot.testing.client import CallError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least
from aliquot_bench.slo.against_clockwork import ClockworkPart
from aliquot_bench.slo.against_optimum import OptimumPart
from aliquot_bench.slo.batches_live import BatchPart
from aliquot_bench.slo.deciding import DecisionPart
from aliquot_bench.slo.learning import LearningPart
from aliquot_bench.slo.measuring import OURS, settings_of
from aliquot_bench.slo.networks import LIMITS, NetworkCase, network_files, network_scenario, read_networks
from aliquot_bench.slo.overload import OverloadPart
from aliquot_bench.slo.part import SEED, SloPart, SloSizes, quick_sizes
from aliquot_bench.slo.pipeline import PipelinePart
from aliquot_bench.slo.trouble import TroublePart

PARTS: tuple[Callable[[SloSizes], SloPart], ...] = (
    PipelinePart,
    ClockworkPart,
    OptimumPart,
    TroublePart,
    LearningPart,
    DecisionPart,
    OverloadPart,
    BatchPart,
)
PLAN_LOAD, PLAN_LANES, PLAN_AT_S = 2.0, 4, 1.0  # of the plan that is drawn


class SloBench:
    """The benchmark `slo`."""

    assumed = "devices of unbounded memory, D = 1, no interference, run times of batches as on a Titan X"
    needs_data = True

    def __init__(self, request: BenchRequest, sizes: SloSizes | None = None) -> None:
        self._quick = request.quick
        self._data = request.data
        if request.data.is_dir():
            check_files(request.data, [*network_files(), needed_files("azure_functions", ImportRequest(request.data))])
        chosen = sizes or (quick_sizes(request.data) if request.quick else SloSizes(request.data))
        self._parts = [make(chosen) for make in PARTS]
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
        return BenchResult("slo", self._quick, goals, tables, self.assumed)

    def draw(self, path: Path) -> None:
        panels = [panel for part in self._parts if part.name not in self._left_out for panel in part.panels()]
        draw_panels(panels, "Calls in time by offered load", path, columns=3)
        case = NetworkCase(LIMITS[-1], PLAN_LOAD, PLAN_LANES, 1, SEED)
        plan = plan_at(network_scenario(case, read_networks(self._data)), settings_of(OURS), PLAN_AT_S)
        draw_plan(plan, f"The plan of four networks, {case.name}, after {PLAN_AT_S:g} s", plan_path(path))


def plan_path(path: Path) -> Path:
    """Return the file of the drawn plan, which is beside that of the plot."""
    return path.with_name(f"{path.stem}-plan{path.suffix}")
