"""The drawn plan: the lanes at one moment of a simulation, with the runs that are planned there."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot.sim.plan_picture import PlannedRun, draw_plan, plan_at

SETTINGS = PolicySettings("fair_resident", admission="reservation")


def scenario():
    """Return three calls of a second for one lane, which all come at once, and a plain one later."""
    arrivals = [Arrival(0.0, "f", deadline_s=10 + number) for number in range(3)] + [Arrival(0.5, "f")]
    functions = {"f": FunctionSpec("f", times=Times(1, 0, 0))}
    return Scenario([DeviceSpec("gpu-1", concurrency=1)], functions, ListedWorkload(arrivals))


def test_the_plan_has_the_run_under_way_and_those_behind_it():
    plan = plan_at(scenario(), SETTINGS, 0.5)
    assert plan.lanes == ["gpu-1/1"]
    assert [(run.starts_s, run.ends_s, run.running) for run in plan.runs] == [
        (0, 1, True),
        (1, 2, False),
        (2, 3, False),
    ]
    assert [run.due_s for run in plan.runs] == pytest.approx([9.998, 10.998, 11.998])  # two ms before the deadlines


def test_a_moment_after_the_end_is_refused():
    with pytest.raises(InputError, match="the simulation ends at 4"):
        plan_at(scenario(), SETTINGS, 50)


def test_a_plan_is_drawn_to_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    plan = plan_at(scenario(), SETTINGS, 0.5)
    assert PlannedRun("gpu-1/1", "f", 1, 0, 1, plan.runs[0].due_s, running=True) == plan.runs[0]
    draw_plan(plan, "a plan", tmp_path / "plan.svg")
    text = (tmp_path / "plan.svg").read_text()
    assert "<svg" in text
