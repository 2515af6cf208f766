"""The benchmark `slo`: its cases, its baseline, and the rules of admission that it has shown to matter."""

from pathlib import Path

import pytest

from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot_bench.base import BenchRequest
from aliquot_bench.slo import SloBench
from aliquot_bench.slo.measuring import CLOCKWORK, FIFO, OURS, SAMPLED, measure, settings_of
from aliquot_bench.slo.networks import NetworkCase, network_scenario, read_networks
from aliquot_bench.slo.part import SloSizes
from aliquot_bench.slo.pipeline import REQUESTS, SECONDS, pipeline

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the profiles are not at hand")
BATCHES = {2: 0.011, 4: 0.013, 8: 0.017}


def calls_of_one_function(*arrivals: Arrival, batch_s: dict[int, float] = BATCHES) -> Scenario:
    function = FunctionSpec("f", times=Times(0.01, 0, 0, batch_s), batch=max(batch_s))
    return Scenario([DeviceSpec("gpu-1", concurrency=1)], {"f": function}, ListedWorkload(arrivals), check=True)


def crowd(rate: float, seconds: float, limit_s: float) -> list[Arrival]:
    return [Arrival(round(number / rate, 6), "f", deadline_s=limit_s) for number in range(int(rate * seconds))]


def test_an_overload_of_calls_that_are_alike_runs_in_large_batches() -> None:
    """One call takes 10 ms and eight take 17, so single calls would complete 100/s and batches 470/s."""
    outcome = measure(calls_of_one_function(*crowd(600, 2, 0.1)), settings_of(OURS))
    assert outcome.broken == 0
    assert outcome.goodput > 350


def test_a_size_that_saves_nothing_does_not_hide_the_sizes_that_do() -> None:
    """A batch of two takes longer than two calls alone, and a batch of eight is four times as fast."""
    scenario = calls_of_one_function(*crowd(400, 2, 0.2), batch_s={2: 0.022, 4: 0.024, 8: 0.026})
    assert measure(scenario, settings_of(OURS)).goodput > 250


def test_clockwork_runs_batches_and_refuses_what_is_late_shortly_before_its_deadline() -> None:
    outcome = measure(calls_of_one_function(*crowd(600, 1, 0.1)), settings_of(CLOCKWORK))
    assert outcome.promised == 0
    assert outcome.goodput > 300
    assert outcome.refused_after_s[0] > 0.05
    assert outcome.met + len(outcome.refused_after_s) == outcome.calls


def test_accepting_everything_is_late_for_nearly_all() -> None:
    assert measure(calls_of_one_function(*crowd(900, 1, 0.05)), settings_of(FIFO)).goodput < 100


@needs_data
def test_networks_grow_slower_with_larger_batches() -> None:
    networks = read_networks(DATA)
    assert [network.name for network in networks] == ["vgg16", "vgg_face", "vgg_s", "yolo"]
    for network in networks:
        times = list(network.times_s.values())
        assert times == sorted(times)
        assert network.best_s(0.1) <= network.times_s[1]


@needs_data
def test_reservation_is_ahead_of_clockwork_where_limits_differ() -> None:
    scenario = network_scenario(NetworkCase("60-120-30-200", 2, 2, 1, 101, 2500), read_networks(DATA))
    ours, peer = (measure(scenario, settings_of(policy)) for policy in (OURS, CLOCKWORK))
    assert ours.met > peer.met
    assert ours.broken_part < 0.01


@needs_data
@pytest.mark.parametrize(("policy", "least"), [(OURS, 250), (SAMPLED, 250), (FIFO, 0)])
def test_the_pipeline_of_the_thesis_keeps_both_limits_for_more_requests_than_it_printed(policy, least) -> None:
    """Its best figures at 20 ms are 0.6 requests/s within the latency limit, and 178 within the cost limit."""
    curve = next(network for network in read_networks(DATA) if network.name == "vgg_s")
    outcome = measure(pipeline(curve, 0.02), settings_of(policy))
    assert outcome.calls == REQUESTS
    assert outcome.broken == 0
    assert outcome.met >= least * SECONDS
    assert bool(outcome.promised) == (policy != FIFO)


@needs_data
@pytest.mark.long
def test_the_benchmark_measures_every_part_and_says_every_goal(tmp_path: Path) -> None:
    sizes = SloSizes(
        DATA, network_calls=300, network_lanes=(2,), instances=3, broken_calls=300, flows_calls=300, tenants_s=0.5,
        decisions=50, live_s=1, live_rounds=1, live_round_s=0.3,
    )  # fmt: skip
    bench = SloBench(BenchRequest(DATA, quick=True), sizes)
    steps: list[str] = []
    result = bench.run(steps.append)
    assert len(steps) == bench.steps
    assert len(result.goals) >= 15
    assert all(goal.value is not None for goal in result.goals)
    bench.draw(tmp_path / "slo.png")
    assert (tmp_path / "slo.png").stat().st_size > 1000
