"""The benchmark of forecasts: its measure of idle memory, its comparison of curves, and a small run on real traces."""

from pathlib import Path
from random import Random

import pytest

from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.learn.demand.model import ChoiceSettings, DemandModel
from aliquot.learn.demand.stage_results import CHOICES
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot_bench.forecast import demand
from aliquot_bench.forecast.curves import FEW_RUNS, QUICK_RUNS, RUNS, runs, starts_at, waited_at
from aliquot_bench.forecast.measuring import IdleMemory, KeepAliveResult, measure
from aliquot_bench.forecast.workload import SAMPLES, MinuteWorkload, read_sample

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def workload(minutes, calls_at):
    function = FunctionSpec("f", GIB, times=Times(1, 2, 0.1))
    arrivals = [Arrival(minute * 60 + 30, "f") for minute in calls_at]
    return MinuteWorkload("hand-made", {"f": function}, ListedWorkload(arrivals), minutes, 0)


def test_idle_memory_is_integrated_from_one_moment_on():
    idle = IdleMemory(10)
    for now, size in ((0, 5), (8, 2), (12, 3), (20, 0), (30, 7)):
        idle.step(now, size)
    assert idle.byte_s == 2 * 2 + 8 * 3


def test_a_fixed_time_wastes_it_after_each_call_and_waits_where_calls_are_further_apart():
    found = measure(workload(40, [14.6, 20, 22, 32]), "fixed_ttl", {"ttl_s": "300"}, setting="5 min")
    assert (found.waited, found.starts) == (2, 2)
    # The sandbox of the first half stays for 9 s. The next one stays for 117 s between two calls and 300 s after them.
    assert found.idle_gib_h == pytest.approx((9 + 117 + 300 + 300) / 3600, abs=0.001)


def test_curves_are_compared_at_equal_idle_memory():
    curve = [KeepAliveResult("x", "", waited, idle, starts) for waited, idle, starts in ((9, 10, 1), (5, 20, 2))]
    assert waited_at(curve, 15) == 7
    assert waited_at(curve, 9) is None
    assert starts_at(curve, 19) == 2


def test_every_policy_is_measured_in_both_sizes():
    work = workload(40, [20])
    for quick, count in ((True, QUICK_RUNS), (False, RUNS)):
        assert len(runs(work, quick=quick)) == count
        named = {what.partition(",")[0] for what, _ in runs(work, quick=quick)}
        assert {"fixed_ttl", "hybrid_histogram", "hazard", "adaptive", "none with lru", "none with gdsf"} == named


def test_a_large_sample_has_fewer_settings_if_it_is_to_be_quick():
    work = workload(40, [20])
    work.functions = {f"f{number}": work.functions["f"] for number in range(1000)}
    assert len(runs(work, quick=True)) == FEW_RUNS
    assert len(runs(work, quick=False)) == RUNS


def test_forecasts_of_demand_have_a_row_for_each_horizon_and_goals_for_the_worst(monkeypatch):
    random = Random(1)
    series = {name: [float(random.randrange(5)) for _ in range(400)] for name in "ab"}
    monkeypatch.setitem(demand.SETS, "made", lambda _: series)
    read = demand.read_set("made", DATA, quick=True)
    found = demand.measure_demand("made", read, DemandModel())
    assert [one.steps for one in found] == list(demand.HORIZONS)
    assert all(0.85 < one.coverage < 0.95 for one in found)
    assert all(one.ratio < 1.1 for one in found)
    assert all(one.hindsight <= min(one.losses.values()) + 1e-9 for one in found)
    assert all(0.5 <= one.largest < 0.7 for one in found), "one of two equal series"
    assert len(demand.demand_table(found, ChoiceSettings()).rows) == len(demand.HORIZONS)
    low, high, ratio = demand.demand_goals("made", found)
    assert low.value <= high.value
    assert ratio.value == max(one.ratio for one in found)


def test_settings_are_chosen_in_the_first_halves_alone():
    random = Random(1)
    first = [float(random.randrange(5)) for _ in range(240)]
    told = []
    sets = [{"made": {"a": first + second}} for second in ([0.0] * 240, [1e6] * 240)]
    assert len({demand.choose_settings(series, told.append) for series in sets}) == 1
    assert len(told) == 2 * len(CHOICES)
    assert demand.first_halves(sets[0]["made"]) == {"a": first}


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not beside the repository")
def test_hazard_has_fewer_cold_starts_than_the_hybrid_histogram_on_a_part_of_a_real_trace():
    work = read_sample(next(iter(SAMPLES)), DATA, functions=120)
    hybrid = measure(work, "hybrid_histogram", {}, setting="4 h")
    hazard = measure(work, "hazard", {"price": "0.1"}, setting="0.1")
    assert hazard.waited < 0.8 * hybrid.waited
    assert hazard.idle_gib_h < 1.2 * hybrid.idle_gib_h
