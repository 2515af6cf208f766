"""Queueing policies, each tested for its own rules."""

import pytest

from aliquot.core.commands import StartSandbox
from aliquot.core.errors import InputError
from aliquot.core.events import FunctionDeployed
from aliquot.core.units import GIB
from aliquot.policies.queueing.mlfq import duration_class
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type


def order_of(policy, calls, functions, *, devices=None, params=None, seed=0):
    """Return the functions in order of dispatch. The first call takes the slot before the others arrive."""
    harness = Harness(policy, devices=devices or [device()], functions=functions, params=params, seed=seed)
    commands = harness.call(calls[0])
    harness.call(*calls[1:], at=1)
    names = []
    while commands:
        names += [calls[int(name)] for name, _, _ in dispatched(commands)]
        commands = harness.run_all(commands)
    return "".join(names)


SHORT, LONG = function("s", run_s=1), function("l", run_s=8)


def test_fcfs_serves_in_order_of_arrival():
    assert order_of("fcfs", "llsls", [SHORT, LONG]) == "llsls"


@pytest.mark.parametrize("policy", ["sjf", "srtf"])
def test_shortest_first_lets_short_work_overtake(policy):
    assert order_of(policy, "llsls", [SHORT, LONG]) == "lssll"


def test_eedf_lets_short_work_overtake_only_as_far_as_it_is_shorter():
    harness = Harness("eedf", devices=[device()], functions=[SHORT, LONG])
    commands = harness.call("s")
    harness.call("l", at=1)  # 1 + 8
    harness.call("s", at=7)  # 7 + 1: overtakes
    harness.call("s", at=9)  # 9 + 1: does not
    names = []
    while commands:
        names += [name for name, _, _ in dispatched(commands)]
        commands = harness.run_all(commands)
    assert names == ["0", "2", "1", "3"]


def test_batch_drains_the_flow_with_the_oldest_call():
    assert order_of("batch", "ababab", [function("a"), function("b")]) == "aaabbb"


def test_estimates_follow_measured_run_times():
    harness = Harness("sjf", devices=[device()], functions=[function("x", run_s=1), function("y", run_s=2)])
    for _ in range(30):
        harness.run_all(harness.call("x"), run_s=9)
    started = harness.call("x")
    harness.call("x", "y")
    assert [name for name, _, _ in dispatched(harness.run_all(started, run_s=9))] == ["32"]


def test_round_robin_blocks_on_the_device_whose_turn_it_is():
    harness = Harness("round_robin", devices=[device("gpu-1"), device("gpu-2")], functions=[function("f")])
    harness.ready(harness.call("f", "f", "f"))
    assert dispatched(harness.finish("1")) == []  # gpu-2 is free, but it is gpu-1's turn
    assert dispatched(harness.finish("0")) == [("2", "gpu-1", "warm")]


def test_round_robin_skips_a_device_that_could_never_hold_the_function():
    small = device("gpu-1", memory_bytes=GIB)
    harness = Harness("round_robin", devices=[small, device("gpu-2")], functions=[function("f", memory_bytes=2 * GIB)])
    assert dispatched(harness.call("f")) == [("0", "gpu-2", "cold")]
    assert dispatched(harness.run_all(harness.log[-3:])) == []
    assert dispatched(harness.call("f")) == [("1", "gpu-2", "warm")]


def test_balance_takes_the_longest_idle_device_whatever_is_resident():
    harness = Harness("balance", devices=[device("gpu-1"), device("gpu-2")], functions=[function("f")])
    harness.run_all(harness.call("f"))
    assert dispatched(harness.call("f")) == [("1", "gpu-2", "cold")]


def test_fcfs_stays_where_it_is_warm():
    harness = Harness("fcfs", devices=[device("gpu-1"), device("gpu-2")], functions=[function("f")])
    harness.run_all(harness.call("f"))
    assert dispatched(harness.call("f")) == [("1", "gpu-1", "warm")]


def test_mlfq_serves_every_bucket_sooner_or_later_and_fifo_within():
    served = order_of("mlfq", "s" + "s" * 40 + "l" * 3, [SHORT, LONG], seed=1)
    assert served.index("l") < 30  # sjf would have it last
    assert sorted(served) == sorted("s" * 41 + "l" * 3)


def test_mlfq_draws_by_its_seed():
    calls = "s" + "sl" * 20
    first, again, other = (order_of("mlfq", calls, [SHORT, LONG], seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(("run_s", "bucket"), [(0, 0), (0.5, 0), (1, 1), (1.9, 1), (2, 2), (8, 4), (9, 4)])
def test_a_duration_class_is_a_power_of_two(run_s, bucket):
    assert duration_class(run_s) == bucket


def exclusive(devices, functions, *, rebalance=False):
    return Harness(
        "exclusive",
        devices=[device(f"gpu-{number}") for number in range(1, devices + 1)],
        functions=[function(name) for name in functions],
        params={"exclusive": {"rebalance": str(rebalance).lower()}},
    )


def test_exclusive_keeps_clients_on_their_own_devices():
    harness = exclusive(4, "ab")
    started = dispatched(harness.call("a", "a", "a", "b"))
    assert started == [("0", "gpu-1", "cold"), ("1", "gpu-2", "cold"), ("3", "gpu-3", "cold")]


def test_exclusive_shares_a_device_between_clients_when_there_are_more_of_them():
    harness = exclusive(2, "abc")
    assert dispatched(harness.call("a", "b", "c")) == [("0", "gpu-1", "cold"), ("1", "gpu-2", "cold")]
    assert dispatched(harness.run_all(harness.log[-6:])) == [("2", "gpu-1", "cold")]


def test_exclusive_counts_a_tenant_as_one_client():
    harness = exclusive(2, "a")
    for tenant, name in (("ann", "x"), ("ann", "y"), ("bob", "x")):
        harness.send(FunctionDeployed(tenant, function(name)))
    harness.call("x", "y", tenant="ann")
    assert len(of_type(StartSandbox, harness.log)) == 1  # three clients; ann has a device of its own, but only one


def test_exclusive_splits_anew_when_a_client_comes():
    harness = exclusive(2, "a")
    harness.ready(harness.call("a", "a", "a"))
    harness.send(FunctionDeployed("default", function("b")))
    assert dispatched(harness.finish("1")) == []  # gpu-2 is b's now
    assert dispatched(harness.call("b")) == [("3", "gpu-2", "cold")]
    assert dispatched(harness.finish("0")) == [("2", "gpu-1", "warm")]


def test_exclusive_moves_a_device_to_a_queue_more_than_half_as_full_again():
    harness = exclusive(4, "ab", rebalance=True)
    assert [where for _, where, _ in dispatched(harness.call("a", "a", "a", "a"))] == ["gpu-1", "gpu-2", "gpu-3"]
    assert dispatched(harness.call("b")) == [("4", "gpu-4", "cold")]


def test_exclusive_without_rebalancing_moves_none():
    harness = exclusive(4, "ab")
    assert [where for _, where, _ in dispatched(harness.call("a", "a", "a", "a"))] == ["gpu-1", "gpu-2"]


def test_exclusive_lets_a_function_too_large_for_its_devices_use_others():
    harness = Harness(
        "exclusive",
        devices=[device("gpu-1", memory_bytes=GIB), device("gpu-2", memory_bytes=8 * GIB)],
        functions=[function("a", memory_bytes=4 * GIB), function("b")],
    )
    assert dispatched(harness.call("a")) == [("0", "gpu-2", "cold")]


def affinity(*functions):
    return Harness("affinity", devices=[device()], functions=functions)


def test_affinity_prefers_a_resident_flow_within_ten_run_times():
    harness = affinity(function("a"), function("b"))
    commands = harness.call("a")
    harness.call(*("a" for _ in range(20)), "b")
    names = []
    while commands:
        names += [name for name, _, _ in dispatched(commands)]
        commands = harness.run_all(commands)
    # a's first, which was alone, and then eleven more: at vTime 0, 1, … 10, where it ties with b's 0 + 10 tau.
    assert names.index("21") == 12


def test_affinity_restarts_a_flow_at_the_smallest_vtime():
    harness = affinity(function("a", run_s=3), function("b"))
    commands = harness.call("a")
    harness.call("a", "a")
    harness.run_all(commands, run_s=3)
    harness.call("b")
    policy = harness.policy()
    assert policy._vtime[harness.flow("b").index] == policy._vtime[harness.flow("a").index] == 3


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"mqfq_sticky": {"t": "5"}}, "mqfq_sticky.t: mqfq_sticky has no such parameter; it has T, alpha"),
        ({"mqfq_sticky": {"T": "five"}}, "mqfq_sticky.T: 'five' does not fit"),
        ({"mqfq_sticky": {"T": "-1"}}, "mqfq_sticky.T: -1.0 does not fit: it takes a number from 0 on"),
        ({"mqfq_sticky": {"T": "nan"}}, "mqfq_sticky.T: nan does not fit"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_it_takes(params, complaint):
    with pytest.raises(InputError, match=complaint):
        Harness("mqfq_sticky", devices=[device()], params=params)


def test_an_unknown_policy_is_refused_with_the_known_names():
    with pytest.raises(InputError, match=r"policy: there is no 'fifo'; it takes affinity, balance, .*, srtf"):
        Harness("fifo", devices=[device()])
