"""Properties of every policy under random workloads: the invariants hold after every step, and every call ends once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import examples_divided_by, scenarios

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.policies.keepalive import KEEPALIVE
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.clairvoyant import SIMULATED_QUEUEING
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report, to_json
from aliquot.testing.builders import device, function
from aliquot.testing.chaos import ChaosShell


@pytest.mark.parametrize("policy", sorted(SIMULATED_QUEUEING))
@examples_divided_by(3)
@given(scenario=scenarios(), keepalive=st.sampled_from([None, *sorted(KEEPALIVE)]))
def test_every_call_is_dispatched_once_after_it_arrived_and_ends_once(policy, scenario, keepalive):
    settings = PolicySettings(policy, keepalive, params={"fixed_ttl": {"ttl_s": "2"}, "exclusive": {"rebalance": "1"}})
    lines = []
    recorder = simulate(scenario, settings, on_dispatch=lines.append)
    arrivals = sorted((a.time_s, a.tenant, a.function) for a in scenario.workload)
    assert sorted((line.arrived_s, line.tenant, line.function) for line in lines) == arrivals
    assert all(line.time_s >= line.arrived_s for line in lines)
    figures = report(policy, 0, recorder, scenario.devices)
    assert figures.completed == len(arrivals)
    assert 0 <= figures.fairness.jain <= 1 + 1e-9


@given(scenario=scenarios(), throttle=st.sampled_from(["0", "1", "3"]), window_steps=st.sampled_from(["0", "2"]))
def test_throttled_flows_are_served_in_the_end(scenario, throttle, window_steps):
    params = {"throttle": throttle, "window_steps": window_steps, "window_swaps": "0"}
    recorder = simulate(scenario, PolicySettings("fair_resident", params={"fair_resident": params}))
    figures = report("fair_resident", 0, recorder, scenario.devices)
    assert figures.completed == len(list(scenario.workload))


@pytest.mark.parametrize("policy", sorted(QUEUEING))
@examples_divided_by(3)
@given(scenario=scenarios())
def test_a_flow_is_served_in_order_of_arrival(policy, scenario):
    lines = []
    simulate(scenario, PolicySettings(policy), on_dispatch=lines.append)
    latest = {}
    for line in lines:
        assert latest.get((line.tenant, line.function), 0) <= line.arrived_s
        latest[line.tenant, line.function] = line.arrived_s


@pytest.mark.parametrize("policy", sorted(SIMULATED_QUEUEING))
@examples_divided_by(3)
@given(scenario=scenarios())
def test_the_same_seed_gives_the_same_bytes(policy, scenario):
    runs = []
    for _ in range(2):
        recorder = simulate(scenario, PolicySettings(policy, seed=3))
        runs.append(to_json([report(policy, 3, recorder, scenario.devices)]))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("policy", sorted(QUEUEING))
@examples_divided_by(2)
@given(
    seed=st.integers(0, 2**32),
    keepalive=st.sampled_from(sorted(KEEPALIVE)),
    host_memory_bytes=st.sampled_from([None, 4 * GIB]),
    extra_slots=st.integers(0, 3),
)
def test_random_failures_lose_no_call(policy, seed, keepalive, host_memory_bytes, extra_slots):
    chaos = ChaosShell(
        policy,
        devices=[
            device("gpu-1", concurrency=2, memory_bytes=4 * GIB),
            device("gpu-2", concurrency=3, memory_bytes=3 * GIB),
            replace(device("cpu-1", kind="cpu", concurrency=3, memory_bytes=None), extra_slots=extra_slots),
        ],
        functions=[
            function("small", datasets=("images", "texts")),
            function("large", memory_bytes=3 * GIB, share=0.7, run_s=5),
            replace(function("host", share=0), host_bytes=GIB, runs_ahead=True),
            replace(function("hungry", share=0), host_bytes=3 * GIB, runs_ahead=True),
            replace(function("unknown", run_s=None, weight=2), host_bytes=GIB),
            replace(function("few", datasets=("images",)), instances=1),
            replace(function("several", share=0.2), instances=2, runs_ahead=True),
            replace(function("either", times_by_kind={"cpu": Times(5, 1, 0)}), runs_ahead=True),
            replace(function("both", share=2, memory_bytes=2 * GIB), runs_ahead=True),
            replace(function("together", datasets=("images",)), batch=4),
            replace(function("few together", share=0.3), batch=3, instances=2),
            replace(function("graph", share=0.5), run_bytes=2 * GIB, one_per_device=True),
            replace(function("arena", share=0.3, memory_bytes=0), run_bytes=GIB, runs_ahead=True),
            replace(function("together on cpu", share=0), batch=8, runs_ahead=True),
        ],
        seed=seed,
        keepalive=keepalive,
        params={"fixed_ttl": {"ttl_s": "5"}, "hybrid_histogram": {"bin_s": "2", "bins": "5", "enough": "1"}},
        host_memory_bytes=host_memory_bytes,
    )
    chaos.run_steps(120)
    assert chaos.ended


@pytest.mark.parametrize("policy", sorted(QUEUEING))
@examples_divided_by(4)
@given(seed=st.integers(0, 2**32), host_memory_bytes=st.sampled_from([None, 4 * GIB]))
def test_nodes_that_are_lost_suspected_and_drained_lose_no_call(policy, seed, host_memory_bytes):
    nodes = [
        replace(device(f"{node}/{kind}-{number}", kind=kind, concurrency=2, memory_bytes=memory), node=node)
        for node in ("n1", "n2", "n3")
        for kind, number, memory in (("gpu", 1, 4 * GIB), ("gpu", 2, 3 * GIB), ("cpu", 1, None))
        if node != "n3" or kind == "gpu"
    ]
    chaos = ChaosShell(
        policy,
        devices=nodes,
        functions=[
            function("small", datasets=("images", "texts")),
            replace(function("large", memory_bytes=4 * GIB, share=0.7, run_s=5), runs_ahead=True),
            replace(function("host", share=0), host_bytes=GIB, runs_ahead=True),
            replace(function("few", datasets=("images",)), instances=1),
            function("both", share=2, memory_bytes=2 * GIB),
            replace(function("together", share=0.5), batch=4),
        ],
        seed=seed,
        keepalive="fixed_ttl",
        params={"fixed_ttl": {"ttl_s": "5"}},
        host_memory_bytes=host_memory_bytes,
    )
    chaos.run_steps(120)
    assert chaos.ended


@pytest.mark.parametrize("policy", sorted(QUEUEING))
@examples_divided_by(12)
@given(seed=st.integers(0, 2**32), count=st.integers(62, 70))
def test_random_failures_lose_no_call_among_many_devices(policy, seed, count):
    """Devices come and go, so that a decision looks at all of them or at a few."""
    small = [device(f"a-{number}", concurrency=1 + number % 2, memory_bytes=2 * GIB) for number in range(count)]
    large = [device(f"b-{number}", kind="b", memory_bytes=4 * GIB) for number in range(2)]
    chaos = ChaosShell(
        policy,
        devices=[*small, *large],
        functions=[
            function("small"),
            function("large", memory_bytes=3 * GIB, run_s=5),
            function("part", share=0.3),
            replace(function("few"), instances=2),
            function("both", share=2, memory_bytes=GIB),
        ],
        seed=seed,
        keepalive="fixed_ttl",
        params={"fixed_ttl": {"ttl_s": "5"}},
    )
    chaos.run_steps(60)
    assert chaos.ended


@given(
    overrun_s=st.sampled_from([0, 1, 5]),
    concurrency=st.integers(1, 3),
    profiles=st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 4]), st.integers(1, 15)), min_size=2, max_size=5
    ),
)
def test_mqfq_keeps_the_service_of_any_two_backlogged_flows_within_its_bound(overrun_s, concurrency, profiles):
    """The tags of dispatched calls differ by at most T + max(tau/w), plus the calls in flight."""
    functions = {
        f"f{number}": FunctionSpec(f"f{number}", times=Times(run_s, 0, 0), weight=weight)
        for number, (run_s, weight, _) in enumerate(profiles)
    }
    arrivals = [Arrival(0, f"f{number}") for number, (_, _, count) in enumerate(profiles) for _ in range(count)]
    scenario = Scenario(
        [DeviceSpec("gpu-1", memory_bytes=None, concurrency=concurrency)],
        functions,
        ListedWorkload(arrivals),
        check=True,
    )
    settings = PolicySettings("mqfq_sticky", params={"mqfq_sticky": {"T": str(overrun_s), "cap": "1"}})
    recorder = simulate(scenario, settings)
    largest = max(run_s / weight for run_s, weight, _ in profiles)
    in_flight = concurrency * largest
    bound = 2 * (overrun_s + largest) + 2 * in_flight
    assert recorder.meters[0].max_gap_s * concurrency <= bound + 1e-9


@given(
    concurrency=st.integers(1, 3),
    share=st.sampled_from([None, 0.3, 0.5]),
    profiles=st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([0.5, 1, 4]), st.integers(1, 15)), min_size=2, max_size=5
    ),
)
def test_fair_resident_keeps_the_service_of_any_two_backlogged_tenants_within_its_bound(concurrency, share, profiles):
    """The bound is derived in docs/decisions/0008: the window, the largest charge, and the calls in flight of both."""
    functions = {
        f"f{number}": FunctionSpec(f"f{number}", 0, share, Times(run_s, 0, 0))
        for number, (run_s, _, _) in enumerate(profiles)
    }
    arrivals = [Arrival(0, f"f{n}", f"t{n}") for n, (_, _, count) in enumerate(profiles) for _ in range(count)]
    scenario = Scenario(
        [DeviceSpec("gpu-1", memory_bytes=None, concurrency=concurrency)],
        functions,
        ListedWorkload(arrivals),
        {f"t{number}": weight for number, (_, weight, _) in enumerate(profiles)},
        check=True,
    )
    recorder = simulate(scenario, PolicySettings("fair_resident"))
    part = share or 1 / concurrency
    charge = max(run_s * part / weight for run_s, weight, _ in profiles)
    window = 12 * max(run_s * part for run_s, _, _ in profiles)
    assert recorder.meters[0].max_gap_s <= 2 * (window + charge + concurrency * charge) + 1e-9


@given(
    count=st.integers(1, 200),
    concurrency=st.integers(1, 3),
    policy=st.sampled_from(["fair_resident", "mqfq_sticky"]),
)
def test_a_fair_policy_never_lets_a_flood_starve_a_single_call(policy, count, concurrency):
    """A single call behind a flood of others waits for the window and the calls in flight, not for all of them."""
    functions = {name: FunctionSpec(name, times=Times(1, 0, 0)) for name in ("flood", "single")}
    arrivals = [Arrival(0, "flood") for _ in range(count)] + [Arrival(0.5, "single")]
    scenario = Scenario(
        [DeviceSpec("gpu-1", memory_bytes=None, concurrency=concurrency)],
        functions,
        ListedWorkload(arrivals),
        check=True,
    )
    recorder = simulate(scenario, PolicySettings(policy))
    wait_s = recorder.flows[next(key for key in recorder.flows if key.function == "single")].wait_s[0]
    assert wait_s <= 12 + 2


@given(
    profiles=st.lists(
        st.tuples(
            st.sampled_from([0.1, 1, 3]),  # run_s
            st.sampled_from([0, 0.2, 2]),  # load_s
            st.sampled_from([0.5, 1, 4]),  # weight of the tenant
            st.integers(1, 25),  # calls
        ),
        min_size=2,
        max_size=5,
    )
)
def test_fair_resident_keeps_its_bound_while_each_call_displaces_another_tenant(profiles):
    """Only one function fits into memory, so the time held includes loading. Calls run one after the other."""
    functions = {
        f"f{n}": FunctionSpec(f"f{n}", 1, times=Times(run_s, 0.5, load_s))
        for n, (run_s, load_s, _, _) in enumerate(profiles)
    }
    weights = {f"t{n}": weight for n, (_, _, weight, _) in enumerate(profiles)}
    arrivals = [Arrival(0, f"f{n}", f"t{n}") for n, (_, _, _, count) in enumerate(profiles) for _ in range(count)]
    device_ = DeviceSpec("gpu-1", memory_bytes=1, concurrency=1)
    scenario = Scenario([device_], functions, ListedWorkload(arrivals), weights, check=True)
    lines = []
    settings = PolicySettings("fair_resident", params={"fair_resident": {"window_steps": "1", "window_swaps": "1"}})
    recorder = simulate(scenario, settings, on_dispatch=lines.append)
    ends = [*(line.time_s for line in lines[1:]), recorder.last_finish_s]
    longest_s = max(run_s + max(0.5, load_s) for run_s, load_s, _, _ in profiles)
    bound = 2 * (longest_s + 2 * longest_s / min(weights.values()))
    for one in weights:
        for other in weights:
            assert largest_lead(lines, ends, weights, one, other) <= bound + 1e-6


def largest_lead(lines, ends, weights, one, other):
    """Return the largest lead of one tenant over another in weighted time held, while both are backlogged."""
    last = min(max(n for n, line in enumerate(lines) if line.tenant == tenant) for tenant in (one, other))
    lead = lowest = largest = 0.0
    for line, end in list(zip(lines, ends, strict=True))[: last + 1]:
        if line.tenant in (one, other):
            lead += (end - line.time_s) / weights[line.tenant] * (1 if line.tenant == one else -1)
        lowest = min(lowest, lead)
        largest = max(largest, lead - lowest)
    return largest if one != other else 0.0


@given(
    flows=st.integers(1, 3),
    count=st.integers(1, 300),
    concurrency=st.integers(1, 2),
    devices=st.integers(1, 2),
    memory=st.integers(1, 3),
)
def test_a_flood_in_tight_memory_does_not_starve_a_call_that_must_displace_others(
    flows, count, concurrency, devices, memory
):
    """The single call is never urgent. It waits for the windows of the others, however many calls they have."""
    times = {f"flood{number}": Times(0.1, 0.5, 0.2) for number in range(flows)} | {"single": Times(1, 2, 1)}
    arrivals = [Arrival(0, f"flood{number % flows}") for number in range(flows * count)] + [Arrival(0.5, "single")]
    scenario = Scenario(
        [DeviceSpec(f"gpu-{n}", memory_bytes=memory, concurrency=concurrency) for n in range(devices)],
        {name: FunctionSpec(name, 1, times=own) for name, own in times.items()},
        ListedWorkload(arrivals),
    )
    params = {"window_steps": "2", "window_swaps": "2", "patience": "1000000"}
    recorder = simulate(scenario, PolicySettings("fair_resident", params={"fair_resident": params}))
    wait_s = recorder.flows[next(key for key in recorder.flows if key.function == "single")].wait_s[0]
    charge_s = 0.1 + 0.5  # the largest of the others
    assert wait_s <= flows * (2 + 2) * charge_s * concurrency + 3


@pytest.mark.parametrize("policy", ["fair_resident", "fcfs", "exclusive"])
@examples_divided_by(8)
@given(seed=st.integers(0, 2**32))
def test_sandboxes_that_move_at_random_lose_no_call(policy, seed):
    chaos = ChaosShell(
        policy,
        devices=[device(f"gpu-{number}", concurrency=4, memory_bytes=8 * GIB) for number in (1, 2, 3)],
        functions=[
            function("half", share=0.5),
            function("whole"),
            replace(function("together", share=0.25), batch=4),
            replace(function("arena", share=0.3, memory_bytes=0), run_bytes=GIB),
        ],
        seed=seed,
        keepalive="none",
    )
    chaos.run_steps(200)
    assert chaos.ended
