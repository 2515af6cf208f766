"""Tests of the simulator: times of starts, transfers and runs, and the report."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FlowKey, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.policies.queueing.fcfs import Fcfs
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.contention import InterferenceCurve
from aliquot.sim.engine import Scenario, Simulation, simulate
from aliquot.sim.experiments import thesis
from aliquot.sim.report import report
from aliquot.testing.builders import device, function


def run(arrivals, functions, *, devices=None, policy="fcfs", **scenario):
    scenario = Scenario(
        devices or [device()], {f.name: f for f in functions}, ListedWorkload(arrivals), check=True, **scenario
    )
    lines = []
    recorder = simulate(scenario, PolicySettings(policy), on_dispatch=lines.append)
    return report(policy, 0, recorder, scenario.devices), recorder, lines


def latencies(recorder, name):
    return list(recorder.flows[FlowKey("default", name)].latency_s)


def test_a_start_takes_the_longer_of_cold_and_load_then_the_run():
    for cold_s, load_s, start_s in ((2, 5, 5), (5, 2, 5)):
        _, recorder, _ = run([Arrival(0, "f")], [function(cold_s=cold_s, load_s=load_s, run_s=1)])
        assert latencies(recorder, "f") == [start_s + 1]


def test_a_swap_in_takes_load_then_the_run():
    functions = [function("f"), function("g")]  # run 1, cold 2, load 0.5
    arrivals = [Arrival(0, "f"), Arrival(10, "g"), Arrival(20, "f")]
    figures, recorder, _ = run(arrivals, functions, devices=[device(memory_bytes=GIB)])
    assert latencies(recorder, "f") == [3, 1.5]
    assert (figures.cold_starts, figures.swap_ins) == (2, 1)
    assert figures.bytes_moved == 5 * GIB  # two starts, one swap-in, two swap-outs


def test_a_call_takes_its_actual_run_time_which_the_core_does_not_know():
    _, recorder, _ = run([Arrival(0, "f", run_s=7)], [function(cold_s=0, load_s=0)])
    assert latencies(recorder, "f") == [7]


def test_a_faster_device_runs_faster_and_declared_times_of_a_kind_take_precedence_over_its_speed():
    arrivals = [Arrival(0, "f", run_s=6)]
    fast = device(kind="rtx4090", speed=2)
    _, recorder, _ = run(arrivals, [function(cold_s=0, load_s=0, run_s=4)], devices=[fast])
    assert latencies(recorder, "f") == [3]
    own = function(cold_s=0, load_s=0, run_s=4, times_by_kind={"rtx4090": Times(1, 0, 0)})
    _, recorder, _ = run(arrivals, [own], devices=[fast])
    assert latencies(recorder, "f") == [1.5]  # 6/4 of the declared 1


def test_load_time_follows_from_the_bandwidth_if_it_is_not_declared():
    slow_bus = DeviceSpec("gpu-1", memory_bytes=4 * GIB, concurrency=1, bandwidth_bytes_s=GIB / 2)
    _, recorder, _ = run([Arrival(0, "f")], [function(cold_s=0, load_s=None, run_s=1)], devices=[slow_bus])
    assert latencies(recorder, "f") == [3]


def test_decimal_times_that_are_equal_on_paper_are_equal():
    """The sum 0.1 + 0.2 equals 0.3, so the device is free when the call arrives."""
    quick = function("f", run_s=0.1, cold_s=0, load_s=0)
    arrivals = [Arrival(0, "f"), Arrival(0.1, "f"), Arrival(0.2, "f"), Arrival(0.3, "f")]
    _, _, lines = run(arrivals, [quick])
    assert [line.time_s for line in lines] == [0, 0.1, 0.2, 0.3]


def test_whole_numbers_stay_whole():
    figures, _, lines = run([Arrival(0, "f"), Arrival(3, "f")], [function(run_s=2, load_s=0)])
    assert [line.time_s for line in lines] == [0, 4]
    assert all(isinstance(line.time_s, int) for line in lines)
    assert figures.makespan_s == 6


def test_interference_stretches_all_that_run_and_is_retimed_when_their_number_changes():
    free = function(cold_s=0, load_s=0, run_s=4)
    arrivals = [Arrival(0, "f"), Arrival(2, "f")]
    _, recorder, _ = run(
        arrivals, [free], devices=[device(concurrency=2)], interference=InterferenceCurve({1: 1, 2: 2})
    )
    # Alone until 2, half speed together until 6 when the first is done, then alone again.
    assert latencies(recorder, "f") == [6, 6]


def test_declared_shares_that_leave_room_do_not_stretch_each_other():
    def pair(share):
        free = function(cold_s=0, load_s=0, run_s=4, share=share)
        calls = [Arrival(0, "f"), Arrival(0, "f")]
        return run(calls, [free], devices=[device(concurrency=2)], interference=InterferenceCurve({1: 1, 2: 2}))[1]

    assert latencies(pair(0.5), "f") == [4, 4]
    assert latencies(pair(None), "f") == [8, 8]


def test_transfers_share_the_bus_if_it_is_shared():
    functions = [function(name, cold_s=1, load_s=4, run_s=1) for name in ("f", "g")]
    calls = [Arrival(0, "f"), Arrival(2, "g")]
    _, recorder, _ = run(calls, functions, devices=[device(concurrency=2)], shared_bus=True)
    # f alone until 2, both at half speed until 6 when f has arrived, then g alone until 8.
    assert latencies(recorder, "f") == [7]
    assert latencies(recorder, "g") == [7]
    _, recorder, _ = run(calls, functions, devices=[device(concurrency=2)])
    assert latencies(recorder, "f") == latencies(recorder, "g") == [5]


def test_runs_that_end_together_under_interference_end_once_each():
    free = function(cold_s=0, load_s=0, run_s=4)
    figures, recorder, _ = run(
        [Arrival(0, "f"), Arrival(0, "f")],
        [free],
        devices=[device(concurrency=2)],
        interference=InterferenceCurve({1: 1, 2: 1.5}),
    )
    assert latencies(recorder, "f") == [6, 6]
    assert figures.completed == 2


def test_the_report_counts_by_function_and_by_tenant():
    arrivals = [Arrival(0, "f", "ann"), Arrival(0, "g", "ann"), Arrival(1, "f", "bob", deadline_s=100)]
    figures, _, _ = run(arrivals, [function("f"), function("g")])
    assert {name: group.completed for name, group in figures.per_function.items()} == {"f": 2, "g": 1}
    assert {name: group.completed for name, group in figures.per_tenant.items()} == {"ann": 2, "bob": 1}
    assert (figures.slo.deadlines, figures.slo.met, figures.slo.attainment) == (1, 1, 1)


def test_utilisation_counts_runs_by_share():
    free = function(cold_s=0, load_s=0, run_s=2)
    figures, _, _ = run([Arrival(5, "f"), Arrival(9, "f")], [free], devices=[device(concurrency=2)])
    assert figures.utilisation == pytest.approx(0.5 * 4 / 6, abs=1e-9)  # half a device for 4 of 6 s
    assert figures.makespan_s == 11


def test_an_empty_workload_has_an_empty_report():
    figures, _, _ = run([], [function()])
    assert (figures.completed, figures.latency_s.mean, figures.fairness.jain) == (0, None, 1)


def test_fairness_figures_show_a_flow_that_is_skipped():
    functions = [FunctionSpec(name, times=Times(run_s, 0, 0)) for name, run_s in (("short", 1), ("long", 4))]
    arrivals = [Arrival(0, name) for name in ("short", "long") for _ in range(20)]
    fair, _, _ = run(arrivals, functions, policy="mqfq_sticky")
    unfair, _, _ = run(arrivals, functions, policy="sjf")
    assert unfair.fairness.jain < 0.6
    assert fair.fairness.jain > 0.9
    assert unfair.fairness.max_gap_s == 19  # 20 calls of one flow before the other; the first of them did not compete
    assert fair.fairness.max_gap_s < unfair.fairness.max_gap_s


@pytest.mark.parametrize("published", thesis.PUBLISHED, ids=lambda published: published.policy)
def test_the_thesis_traces_match_to_the_digit(published):
    assert thesis.printed_trace(published.policy) == published


@pytest.mark.parametrize(("policy", "cold_starts"), thesis.PUBLISHED_COLD_STARTS.items())
@pytest.mark.parametrize("seed", range(3))
def test_the_thesis_cold_starts_match(policy, cold_starts, seed):
    assert thesis.poisson_run(policy, seed=seed).cold_starts == cold_starts


def test_exclusive_with_rebalancing_meets_all_cold_starts():
    assert thesis.poisson_run("exclusive", rebalance=True).cold_starts == 8


@pytest.mark.parametrize("seed", range(5))
def test_the_clairvoyant_srtf_lets_bert_wait_as_long_as_published(seed):
    wait_s = thesis.poisson_run("srtf_clairvoyant", seed=seed, steps=100).per_function["bert"].wait_s.mean
    low, high = thesis.SRTF_BERT_WAIT_RANGE_S
    assert low <= wait_s <= high


def test_a_session_keeps_its_sandbox_until_half_an_hour_after_its_last_call():
    kept_for = PolicySettings("fcfs", "fixed_ttl", params={"fixed_ttl": {"ttl_s": "5"}})
    moments = [0, 1000, 2800, 2801 + 1800]  # at the last one the session has just ended
    for session, warmth in ((None, ["cold"] * 4), ("s", ["cold", "warm", "warm", "cold"])):
        workload = ListedWorkload([Arrival(moment, "f", session=session) for moment in moments])
        lines = []
        scenario = Scenario([device()], {"f": function("f")}, workload, check=True)
        simulate(scenario, kept_for, on_dispatch=lines.append)
        assert [line.start for line in lines] == warmth


def test_a_session_does_not_end_while_its_call_runs():
    kept_for = PolicySettings("fcfs", "fixed_ttl", params={"fixed_ttl": {"ttl_s": "5"}})
    functions = {"long": function("long", run_s=5000), "f": function("f")}
    arrivals = [Arrival(0, "long", session="s"), Arrival(1, "f", session="s"), Arrival(4000, "f", session="s")]
    lines = []
    scenario = Scenario([device(concurrency=2)], functions, ListedWorkload(arrivals), check=True)
    simulate(scenario, kept_for, on_dispatch=lines.append)
    assert [line.start for line in lines] == ["cold", "cold", "warm"]


def test_a_wake_up_that_a_policy_requests_off_the_grid_is_rounded_up():
    class Waker(Fcfs):
        def wake_at(self):
            return 0.1234567891234 + self.calls

        calls = 0

        def enqueued(self, flow, invocation, view):
            self.calls += 1
            super().enqueued(flow, invocation, view)

    workload = ListedWorkload([Arrival(0, "a"), Arrival(1.123456789, "a"), Arrival(1.12345679, "a")])
    functions = {"a": FunctionSpec("a", 1, times=Times(0, 0, 0))}
    scenario = Scenario([DeviceSpec("gpu-1", memory_bytes=1)], functions, workload)
    simulation = Simulation(scenario, PolicySettings("waker"), workload.overview(), {"waker": Waker}, None)
    moments = list(simulation.moments())
    assert moments == sorted(moments) == [round(moment, 9) for moment in moments]
    assert 1.12345679 in moments
