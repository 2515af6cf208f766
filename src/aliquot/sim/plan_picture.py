"""A picture of the plan of admission at one moment: the lanes of all devices, with the runs that are planned there."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.admission.blocks import Block
from aliquot.core.errors import InputError
from aliquot.core.scheduler import Scheduler
from aliquot.sim.clairvoyant import queueing_policies
from aliquot.sim.engine import Scenario, Simulation
from aliquot.sim.plots import COLOURS, new_figure, plain_text, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_DRAWN_LANES = 32
BAR, SLACK = 0.7, 0.12  # heights, of the distance of two lanes


class PlannedRun(Struct, frozen=True):
    """One block of the plan, in one of its lanes."""

    lane: str
    function: str
    calls: int
    starts_s: float
    ends_s: float  # at the latest
    due_s: float  # of the call that is due first; the end where there is no deadline
    running: bool = False


class PlanAt(Struct, frozen=True):
    """The plan at one moment."""

    at_s: float
    lanes: list[str]
    runs: list[PlannedRun]


def plan_at(scenario: Scenario, settings: PolicySettings, at_s: float) -> PlanAt:
    """Simulate until that moment, and return the plan. Raises `InputError` if the simulation ends before."""
    overview = scenario.workload.overview()
    policies = queueing_policies(settings.queueing, scenario.workload)
    simulation = Simulation(scenario, settings, overview, policies, None, None)
    for _ in simulation.moments():
        if simulation.scheduler.now >= at_s:
            return read_plan(simulation.scheduler)
    raise InputError(f"--plan-at: the simulation ends at {simulation.scheduler.now:g} s; it takes a time before")


def read_plan(scheduler: Scheduler) -> PlanAt:
    """Return the plan of a scheduler as it is now."""
    plan = scheduler.admitter.plan
    lanes: list[str] = []
    runs: list[PlannedRun] = []
    for device in plan.devices.values():
        for lane in device.lanes:
            lanes.append(name := f"{device.device.spec.name}/{lane.number + 1}")
            running = None if lane.occupant is None else plan.running.get(lane.occupant.id)
            if running is not None:
                runs.append(_planned(name, running, running.began, lane.busy_until, running=True))
            runs += (_planned(name, block, block.starts, block.ends) for block in lane.blocks)
    return PlanAt(scheduler.now, lanes, runs)


def _planned(lane: str, block: Block, starts: float, ends: float, *, running: bool = False) -> PlannedRun:
    due = max(ends, min(block.due, block.limit))
    due = ends if due == float("inf") else due
    return PlannedRun(lane, block.flow.key.function, len(block.members), starts, ends, due, running)


def draw_plan(plan: PlanAt, title: str, path: Path) -> None:
    """Draw a row for each lane: a bar for each run, the number of its calls, and a line to its due time."""
    lanes = plan.lanes[:MAX_DRAWN_LANES]
    figure, ((axis,),) = new_figure(1, 1, (11, 1.6 + 0.55 * max(1, len(lanes))))
    figure.suptitle(plain_text(title), x=0.01, ha="left", fontsize=12)
    functions = list(dict.fromkeys(run.function for run in plan.runs))
    for run in plan.runs:
        if run.lane in lanes:
            _draw_run(axis, run, lanes.index(run.lane), functions.index(run.function), plan.at_s)
    for number, function in enumerate(functions):
        axis.bar(0, 0, color=COLOURS[number % len(COLOURS)], label=plain_text(function))
    axis.axvline(0, color="black", linewidth=1)
    axis.set_yticks(range(len(lanes)), lanes, fontsize=8)
    axis.set_ylim(len(lanes) - 0.4, -0.6)
    axis.set_xlabel(
        "ms from now; a bar ends at the bound of its run, a line at its due time; runs under way are hatched"
    )
    axis.grid(visible=True, axis="x", alpha=0.25)
    if functions:
        axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    save_figure(figure, path)


def _draw_run(axis: "Axes", run: PlannedRun, row: int, number: int, at_s: float) -> None:
    colour = COLOURS[number % len(COLOURS)]
    left, width = 1e3 * (run.starts_s - at_s), 1e3 * (run.ends_s - run.starts_s)
    axis.barh(row, 1e3 * (run.due_s - run.ends_s), SLACK, left + width, color=colour, alpha=0.35)
    axis.barh(row, width, BAR, left, color=colour, edgecolor="white", hatch="//" if run.running else None)
    axis.text(left + width / 2, row, str(run.calls), ha="center", va="center", fontsize=7, color="white")
