"""The fairness benchmark, on a small part of the real traces if they are there."""

from pathlib import Path

import pytest

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report
from aliquot.sim.workloads import WorkloadSpec, make_arrivals, make_functions
from aliquot_bench.base import BenchRequest
from aliquot_bench.benches import BENCHES
from aliquot_bench.cli.bench import NAMES
from aliquot_bench.fairness import FairnessBench, cases
from aliquot_bench.fairness import bench as fairness
from aliquot_bench.fairness.lower_bound import Throughput, ideal_fair_p99_s, p99_bound_s, throughput
from aliquot_bench.fairness.measuring import CaseJob, measure_all
from aliquot_bench.fairness.variants import FRONTIER
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
    bench = FairnessBench(BenchRequest(DATA, quick=True), workers=1)
    bench._many_calls = 300
    steps = []
    result = bench.run(steps.append)
    assert len(steps) == bench.steps
    assert any("azure_functions: p99" in goal.name for goal in result.goals)
    titles = [table.title.split(":")[0] for table in result.tables]
    assert [row[:2] for row in result.tables[0].rows] == [["azure_functions", len(cases.LOADS) - 1]]
    assert titles[1] == "Tight memory"
    assert titles[3] == "Ablation"
    assert [row[1] for row in result.tables[4].rows] == list(FRONTIER)
    by_function = result.tables[5].rows
    assert [row[:2] for row in by_function] == [["azure_functions", cases.COMMON_SHAPE.name]]
    assert by_function[0][3] + by_function[0][4] <= 100
    assert len(result.tables[-1].rows) == len(cases.LOADS) * 6
    bench.draw(tmp_path / "o.png")
    assert (tmp_path / "o.png").stat().st_size > 0


def test_cases_measured_by_several_processes_have_the_same_reports_in_the_same_order():
    shape = cases.DeviceShape(1, 1, 16)
    jobs = [
        CaseJob(cases.FairnessCase("generated", load, shape, 1), Path("unused"), {"fcfs": PolicySettings("fcfs")})
        for load in (1.3, 0.3)
    ]
    assert list(measure_all(jobs, workers=2)) == list(measure_all(jobs, workers=1))


@pytest.mark.parametrize("policy", ["fcfs", "batch", "sjf", "fair_resident"])
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_no_schedule_is_below_the_bound_of_p99(policy, concurrency, seed):
    functions = make_functions(6, seed)
    spec = WorkloadSpec(load=2 * concurrency, devices=1, duration_s=200, run_cv=0.5, seed=seed)
    workload = ListedWorkload(make_arrivals(functions, spec))
    devices = [DeviceSpec("gpu-1", memory_bytes=64 * GIB, concurrency=concurrency)]
    curve = InterferenceCurve(V100_STRETCH)
    scenario = Scenario(devices, functions, workload, interference=curve)
    speed = throughput(1, concurrency, curve)
    bound_s = p99_bound_s(workload, functions, speed)
    run = report(policy, 0, simulate(scenario, PolicySettings(policy)), scenario.devices)
    assert 10 < bound_s <= run.latency_s.p99
    assert p99_bound_s(workload, functions, Throughput(speed.capacity, 0)) < bound_s  # starts count
    assert bound_s <= ideal_fair_p99_s(workload, functions, speed)


def test_a_start_costs_the_work_that_its_slot_could_have_done():
    curve = InterferenceCurve({1: 1, 2: 1.25, 3: 2})
    assert throughput(4, 1, curve) == Throughput(4, 1)
    assert throughput(1, 2, curve) == Throughput(1.6, 0.6000000000000001)
    assert throughput(1, 3, curve) == Throughput(1.6, 0)  # a third call at once adds nothing


def test_the_bound_of_p99_is_reached_by_equal_calls_that_arrive_at_once():
    functions = {"a": FunctionSpec("a", 0, times=Times(1, 0, 0)), "b": FunctionSpec("b", 0, times=Times(1, 7, 0))}
    workload = ListedWorkload([Arrival(0, "a") for _ in range(201)])
    alone = Throughput(1, 1)
    assert p99_bound_s(workload, functions, alone) == 199  # two calls may take longer
    scenario = Scenario([DeviceSpec("gpu-1", memory_bytes=1, concurrency=1)], functions, workload)
    assert report("fcfs", 0, simulate(scenario, PolicySettings("fcfs")), scenario.devices).latency_s.p99 == 199
    mixed = ListedWorkload([*(Arrival(0, "b") for _ in range(3)), *(Arrival(0, "a") for _ in range(198))])
    # Two of the three calls of b may take longer, which by the relaxation saves two thirds of its start.
    assert p99_bound_s(mixed, functions, alone) == pytest.approx(199 + 7 / 3)


def test_ideal_fair_sharing_divides_the_devices_among_the_flows_that_wait():
    functions = {name: FunctionSpec(name, 0, times=Times(1, 0, 0)) for name in "ab"}
    workload = ListedWorkload([*(Arrival(0, "a") for _ in range(100)), Arrival(10, "b")])
    # The call of b takes two seconds, and the last ones of a end after 100 and 101.
    assert ideal_fair_p99_s(workload, functions, Throughput(1, 1)) == pytest.approx(100)
