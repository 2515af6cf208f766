"""The simulator keeps results of calls with the same key, in the same cache as the live platform."""

import pytest
from msgspec.structs import replace

from aliquot.config import PolicySettings
from aliquot.core.model import FlowKey, NodeSpec
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.nodes import NodeLoss
from aliquot.sim.report import report
from aliquot.sim.results import ResultSettings
from aliquot.sim.traces import FunctionsFile, TraceFile
from aliquot.testing.builders import device, function

F = function("f", cold_s=0, load_s=0)


def simulated(arrivals, *, ttl_s=60, **more):
    scenario = Scenario([device()], {"f": F}, ListedWorkload(arrivals), check=True, **more)
    scenario.results = ResultSettings(ttl_s)
    recorder = simulate(scenario, PolicySettings("fcfs"))
    return report("fcfs", 0, recorder, scenario.devices), recorder


def latencies(recorder, tenant="default"):
    return sorted(recorder.flows[FlowKey(tenant, "f")].latency_s)


def test_only_the_first_of_equal_calls_runs():
    figures, recorder = simulated([Arrival(0, "f", key="a"), Arrival(0.4, "f", key="a"), Arrival(2, "f", key="a")])
    assert latencies(recorder) == [0, pytest.approx(0.6), 1]
    assert (figures.completed, figures.cached) == (3, 2)
    assert recorder.busy_s == 1


def test_other_keys_tenants_and_calls_without_a_key_run():
    arrivals = [Arrival(0, "f", key="a"), Arrival(2, "f", key="b"), Arrival(4, "f", "ann", key="a")]
    figures, _ = simulated([*arrivals, Arrival(6, "f"), Arrival(8, "f")])
    assert (figures.completed, figures.cached) == (5, 0)


def test_a_result_is_kept_for_its_time():
    figures, _ = simulated([Arrival(0, "f", key="a"), Arrival(3, "f", key="a"), Arrival(20, "f", key="a")], ttl_s=10)
    assert figures.cached == 1
    assert simulated([Arrival(0, "f", key="a"), Arrival(3, "f", key="a")], ttl_s=0)[0].cached == 0


def test_calls_that_wait_do_not_share_a_failure():
    devices = [device("gpu-1"), device("gpu-2")]

    scenario = Scenario(
        [replace(each, node=f"n{number}") for number, each in enumerate(devices, 1)],
        {"f": F},
        ListedWorkload([Arrival(0, "f", key="a"), Arrival(0.2, "f", key="a")]),
        check=True,
        nodes=[NodeSpec("n1"), NodeSpec("n2")],
        losses=[NodeLoss(0.5, "n1")],
    )
    scenario.results = ResultSettings(60)
    recorder = simulate(scenario, PolicySettings("fcfs"))
    figures = report("fcfs", 0, recorder, scenario.devices)
    assert (figures.failed, figures.completed, figures.cached) == (1, 1, 0)


def test_keys_are_a_column_of_the_arrivals_file(tmp_path):
    (tmp_path / "f.csv").write_text("name,run_s,cold_s,memory_mib\nf,1,0,1\n")
    (tmp_path / "a.csv").write_text("time_s,function,key\n0,f,x\n1,f,\n")
    functions = FunctionsFile(tmp_path / "f.csv").functions
    assert [arrival.key for arrival in TraceFile(tmp_path / "a.csv", functions)] == ["x", None]
