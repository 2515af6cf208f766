"""The fairness benchmark, on a small part of the real traces if they are there."""

from pathlib import Path

import pytest

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report
from aliquot.sim.workloads import WorkloadSpec, make_arrivals, make_functions
from aliquot_bench.base import BenchRequest
from aliquot_bench.benches import BENCHES
from aliquot_bench.cli.bench import NAMES
from aliquot_bench.fairness import FairnessBench, cases
from aliquot_bench.fairness import bench as fairness
from aliquot_bench.fairness.lower_bound import p99_bound_s
from aliquot_bench.result import at_least, at_most

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def test_the_commands_help_names_every_benchmark():
    assert NAMES.replace(" or ", ", ").split(", ") == list(BENCHES)


def test_a_goal_is_met_or_it_is_not():
    assert at_most("x", 1, 1).met
    assert not at_most("x", 1.01, 1).met
    assert not at_most("x", None, 1).met
    assert at_least("x", 1, 1, "times").unit == "times, at least"
    assert not at_least("x", 0.99, 1).met


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not at hand")
def test_the_fairness_benchmark_measures_every_set_and_says_every_goal(monkeypatch, tmp_path):
    monkeypatch.setattr(cases, "SETS", {"azure_functions": 0})
    monkeypatch.setattr(cases, "QUICK_SHAPES", (cases.COMMON_SHAPE,))
    monkeypatch.setattr(cases, "CALLS", {2: 300})
    monkeypatch.setattr(fairness, "CLIENTS", (28,))
    bench = FairnessBench(BenchRequest(DATA, quick=True))
    bench._many_calls = 300
    steps = []
    result = bench.run(steps.append)
    assert len(steps) == bench.steps
    assert any("azure_functions: p99" in goal.name for goal in result.goals)
    titles = [table.title.split(":")[0] for table in result.tables]
    assert titles[0] == "Tight memory"
    assert titles[2] == "Ablation"
    assert len(result.tables[-1].rows) == len(cases.LOADS) * 6
    bench.draw(tmp_path / "o.png")
    assert (tmp_path / "o.png").stat().st_size > 0


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "fair_resident"])
@pytest.mark.parametrize("seed", range(3))
def test_no_schedule_is_below_the_bound_of_p99(policy, seed):
    functions = make_functions(6, seed)
    spec = WorkloadSpec(load=2, devices=1, duration_s=200, run_cv=0.5, seed=seed)
    workload = ListedWorkload(make_arrivals(functions, spec))
    scenario = Scenario([DeviceSpec("gpu-1", memory_bytes=64 * GIB, concurrency=1)], functions, workload)
    bound_s = p99_bound_s(workload, functions, 1)
    run = report(policy, 0, simulate(scenario, PolicySettings(policy)), scenario.devices)
    assert 10 < bound_s <= run.latency_s.p99


def test_the_bound_of_p99_is_reached_by_equal_calls_that_arrive_at_once():
    functions = {"a": FunctionSpec("a", 0, times=Times(1, 0, 0))}
    workload = ListedWorkload([Arrival(0, "a") for _ in range(201)])
    assert p99_bound_s(workload, functions, 1) == 199  # two calls may take longer
    scenario = Scenario([DeviceSpec("gpu-1", memory_bytes=1, concurrency=1)], functions, workload)
    assert report("fcfs", 0, simulate(scenario, PolicySettings("fcfs")), scenario.devices).latency_s.p99 == 199
