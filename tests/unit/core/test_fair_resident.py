"""`fair_resident`, tested by the weaknesses of other policies that it avoids. Each switch brings one of them back."""

import pytest
from msgspec.structs import replace

from aliquot.config import PolicySettings
from aliquot.core.commands import StopSandbox, WakeAt
from aliquot.core.events import DeviceAdded, FunctionDeployed, InvocationArrived, Woke
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type
from aliquot_bench.fairness.isolation import quiet_mean_s


def resident(*functions, devices=None, tenant_weights=None, pool_slots=None, **params):
    return Harness(
        "fair_resident",
        devices=devices or [device()],
        functions=functions,
        params={"fair_resident": {name: str(value).lower() for name, value in params.items()}},
        tenant_weights=tenant_weights,
        pool_slots=pool_slots,
    )


def order(harness, commands):
    names = []
    while commands:
        names += [name for name, _, _ in dispatched(commands)]
        commands = harness.run_all(commands)
    return names


def test_hole_1_a_flow_whose_warm_sandbox_is_about_to_be_free_waits_for_it():
    devices = [device("gpu-1"), device("gpu-2")]
    for joint, started in ((True, []), (False, [("1", "gpu-2", "cold")])):
        harness = resident(function("f", run_s=1, cold_s=20), devices=devices, joint=joint)
        harness.run_all(harness.call("f"))
        harness.ready(harness.call("f"))
        assert [line[1:] for line in dispatched(harness.call("f"))] == [line[1:] for line in started]


def test_a_flow_whose_warm_sandbox_is_about_to_be_free_does_not_load_a_copy_elsewhere():
    devices = [device("gpu-1", memory_bytes=GIB), device("gpu-2", memory_bytes=GIB)]
    functions = [function(name, run_s=1, cold_s=0, load_s=5) for name in ("f", "g")]
    harness = resident(*functions, devices=devices)
    order(harness, harness.call(*("f" for _ in range(20))))  # a backlog, so it has a copy on each device now
    harness.ready(harness.call("f"))
    harness.ready(harness.call("g"))  # it displaces the copy of f on the other device
    harness.finish("21")
    assert [box.device.spec.name for box in harness.flow("f").swapped_out()] == ["gpu-2"]
    assert not dispatched(harness.call("f"))  # the copy on gpu-1 is free in a second, loading the other takes five
    assert dispatched(harness.finish("20")) == [("22", "gpu-1", "warm")]


def test_a_run_that_takes_longer_than_expected_is_not_waited_for_beside_an_idle_device():
    harness = resident(function("f", run_s=1, cold_s=20), devices=[device("gpu-1"), device("gpu-2")])
    harness.run_all(harness.call("f"))
    harness.ready(harness.call("f", at=100))
    commands = harness.call("f", at=100)
    assert not dispatched(commands)
    while not dispatched(commands):
        wake = of_type(WakeAt, harness.log)[-1].at
        assert wake > harness.now, "nothing would wake the scheduler"
        commands = harness.send(Woke(), at=wake)
    assert dispatched(commands) == [("2", "gpu-2", "cold")]
    assert harness.now < 100 + 20


def test_hole_1_a_backlog_is_a_reason_to_start_another():
    harness = resident(function("f", run_s=1, cold_s=20), devices=[device("gpu-1"), device("gpu-2")])
    harness.run_all(harness.call("f"))
    harness.call(*("f" for _ in range(60)))
    assert [line[1:] for line in dispatched(harness.log)[1:]] == [("gpu-1", "warm"), ("gpu-2", "cold")]


def test_hole_1_a_flow_in_device_memory_goes_before_one_that_is_not():
    harness = resident(function("a"), function("b"), devices=[device(memory_bytes=GIB)])
    harness.run_all(harness.call("a"))
    harness.run_all(harness.call("b"))  # a is swapped out now
    commands = harness.call("b")
    harness.call("a", "b", at=1)
    assert order(harness, commands) == ["2", "4", "3"]


def test_a_flow_without_room_is_tried_again_when_a_device_is_added():
    harness = resident(function("a"), function("b"), devices=[device(memory_bytes=GIB, concurrency=2)])
    harness.ready(harness.call("a"))
    assert not dispatched(harness.call("b"))  # a slot is free, but no memory
    assert dispatched(harness.send(DeviceAdded(device("gpu-2", memory_bytes=GIB)))) == [("1", "gpu-2", "cold")]


def test_hole_2_measured_use_is_charged():
    def starts(true_up):
        harness = resident(function("f", run_s=1, cold_s=5, load_s=0), true_up=true_up)
        harness.ready(harness.call("f", at=0), at=5)
        harness.finish("0", run_s=9, at=14)
        clock = harness.policy()._clock
        return clock.tenants["default"].clock.starts[harness.flow("f").index], clock.clock.starts[0]

    assert starts(True) == (14, 14)
    assert starts(False) == (1, 1)


def first_served(arrivals, functions, count, **scenario):
    """Return the tenants of the first dispatches when all calls are queued at the start."""
    listed = {name: function(name, cold_s=0, load_s=0) for name in functions}
    lines = []
    settings = PolicySettings("fair_resident", params={"fair_resident": {"window_steps": "0"}})
    workload = ListedWorkload(Arrival(0, name, tenant) for tenant, name in arrivals)
    simulate(Scenario([device()], listed, workload, check=True, **scenario), settings, on_dispatch=lines.append)
    return [line.tenant for line in lines[:count]]


def test_fairness_has_two_levels():
    """A tenant with four functions and a tenant with one function get the same service."""
    names = ["f0", "f1", "f2", "f3"]
    arrivals = [("many", name) for name in names for _ in range(10)] + [("single", "g")] * 10
    assert first_served(arrivals, [*names, "g"], 20).count("single") == 10


def test_the_operators_weights_hold_between_tenants():
    arrivals = [("heavy", "f")] * 30 + [("light", "g")] * 30
    assert first_served(arrivals, ["f", "g"], 20, tenant_weights={"heavy": 3}).count("heavy") == 15


def test_service_of_a_tenant_while_it_was_alone_does_not_count_against_it():
    harness = resident(function("f", cold_s=0, load_s=0), window_s=0, adaptive=False, true_up=False)
    for _ in range(20):
        harness.run_all(harness.call("f"))
    harness.send(FunctionDeployed("late", function("f", cold_s=0, load_s=0)))
    commands = harness.call("f", "f", "f", "f", tenant="late") + harness.call("f", "f", "f", "f")
    assert sum(int(name) < 24 for name in order(harness, commands)[1:5]) == 2


@pytest.mark.parametrize("greed", [{"functions": 100}, {"weight": 1000}])
def test_neither_many_functions_nor_a_large_weight_takes_from_another_tenant(greed):
    assert quiet_mean_s("fair_resident", **greed) <= 1.05 * quiet_mean_s("fair_resident")


def test_many_functions_do_take_from_others_in_the_flat_baseline():
    assert quiet_mean_s("mqfq_sticky", functions=100) > 2 * quiet_mean_s("mqfq_sticky")


def test_a_sandbox_that_a_call_waits_for_is_stopped_last():
    names = ("rare", "often", "other")
    one = device(memory_bytes=8 * GIB, concurrency=1)
    harness = resident(*(function(name) for name in names), devices=[one], pool_slots=3)
    harness.run_all(harness.call("rare", at=0))
    harness.run_all(harness.call("rare", at=100))
    for moment in range(101, 110):
        harness.run_all(harness.call("often", at=moment))
    rare, often = (next(iter(harness.flow(name).sandboxes.values())) for name in ("rare", "often"))
    victim = rare.device.pool_order.victim
    assert victim(now=harness.now).sandbox is rare  # its next call is expected in 90 seconds
    harness.call("other", at=110.4)  # takes the only slot
    harness.call("rare", at=110.4)
    assert rare.next_use_s(harness.now) == 0
    assert victim(now=harness.now).sandbox is often


def test_a_flow_beyond_the_window_takes_what_no_other_flow_can_use_and_its_lead_stays():
    functions = [function("waits", cold_s=20), function("other", cold_s=0, load_s=0)]
    harness = resident(
        *functions, devices=[device("gpu-1"), device("gpu-2")], window_s=0, adaptive=False, true_up=False
    )
    harness.run_all(harness.call("waits"))
    harness.ready(harness.call("waits"))
    assert not dispatched(harness.call("waits"))  # for its sandbox, and holds virtual time back
    clock = harness.policy()._clock.tenants["default"].clock
    for _ in range(5):
        commands = harness.call("other")
        assert [line[1] for line in dispatched(commands)] == ["gpu-2"]
        harness.run_all(commands)
    assert clock.starts[harness.flow("other").index] - clock.now == 1  # not five


def test_service_beyond_the_window_adds_up_to_the_window_of_a_single_device():
    functions = [function("waits", cold_s=20), function("other", cold_s=0, load_s=0)]
    devices = [device("gpu-1"), device("gpu-2")]
    harness = resident(*functions, devices=devices, window_steps=4, window_swaps=0, true_up=False)
    harness.run_all(harness.call("waits"))
    harness.ready(harness.call("waits"))
    assert not dispatched(harness.call("waits"))  # for its sandbox, and holds virtual time back
    clock = harness.policy()._clock.tenants["default"].clock
    leads = []
    for _ in range(60):
        harness.run_all(harness.call("other"))
        leads.append(clock.starts[harness.flow("other").index] - clock.now)
    window = clock.window
    assert window.max_lead == 2 * window.size
    assert leads[-1] > window.size
    assert max(leads[-20:]) <= window.max_lead + 2  # and the charge of one call more


def test_a_throttled_flow_waits_beside_an_idle_device_until_the_others_catch_up():
    functions = [function("waits", cold_s=20), function("other", cold_s=0, load_s=0)]
    devices = [device("gpu-1"), device("gpu-2")]
    harness = resident(*functions, devices=devices, window_s=1, adaptive=False, true_up=False, throttle=3)
    harness.run_all(harness.call("waits"))
    harness.ready(harness.call("waits"))
    harness.call("waits")
    served = 0
    while dispatched(commands := harness.call("other")):
        harness.run_all(commands)
        served += 1
    assert served == 4  # three windows of a second, and the call that exceeds them
    assert [name for name, _, _ in dispatched(harness.finish("1"))] == ["2", str(3 + served)]


def test_urgency_counts_from_when_a_call_became_the_head_of_its_flow():
    harness = resident(function("long", run_s=10, cold_s=0, load_s=0), function("short", run_s=0.1, cold_s=0, load_s=0))
    commands = harness.call("long", at=0)
    harness.call("long", "long", at=0)
    harness.call("short", at=5)
    assert order(harness, commands)[:2] == ["0", "3"]  # the second long call has waited longer than 30 times 0.1 s


def test_the_sandbox_that_starts_slowest_is_stopped_last():
    functions = [
        function("slow", cold_s=60, load_s=0.1), function("quick", cold_s=1, load_s=0.5), function("new", cold_s=1),
    ]  # fmt: skip
    harness = resident(*functions, devices=[device(memory_bytes=8 * GIB)], pool_slots=2)
    for moment in range(0, 100, 10):
        harness.run_all(harness.call("slow", at=moment))
        harness.run_all(harness.call("quick", at=moment + 5))
    quick = next(iter(harness.flow("quick").sandboxes))
    assert of_type(StopSandbox, harness.call("new")) == [StopSandbox(quick, "its pool slot is needed", room_for="20")]


def test_hole_3_an_earlier_deadline_goes_first():
    harness = resident(function("a"), function("b"))
    commands = harness.call("a")
    for name, deadline_s in (("a", 50), ("b", 10)):
        harness.send(InvocationArrived(f"due-{name}", "default", name, deadline_s=deadline_s))
    assert order(harness, commands) == ["0", "due-b", "due-a"]


def test_hole_5_no_more_calls_run_at_once_than_raise_the_throughput():
    harness = resident(function("f", run_s=1, cold_s=0, load_s=0), devices=[device(concurrency=2)])

    def pair(run_s):
        harness.ready(harness.call("f", "f"))
        for name in [*harness.scheduler.invocations]:
            harness.finish(name, run_s=run_s)

    for _ in range(25):
        harness.run_all(harness.call("f"))  # alone: 1 s
    for _ in range(25):
        pair(3)  # side by side: three times as long
    occupancy = harness.policy()._occupancy
    gpu = harness.scheduler.registry.device("gpu-1")
    assert occupancy.max_worthwhile(gpu) == 1
    commands = harness.call("f", "f")
    assert len(dispatched(commands)) == 1
    tried_again = False
    for _ in range(900):
        commands = harness.run_all(commands) or harness.call("f")
        tried_again |= occupancy.max_worthwhile(gpu) == 2
    assert tried_again


def test_hole_5_mild_interference_is_worth_it():
    harness = resident(function("f", run_s=1, cold_s=0, load_s=0), devices=[device(concurrency=2)])
    for _ in range(25):
        harness.run_all(harness.call("f"))
    for _ in range(25):
        harness.ready(harness.call("f", "f"))
        for name in [*harness.scheduler.invocations]:
            harness.finish(name, run_s=1.28)
    occupancy = harness.policy()._occupancy
    gpu = harness.scheduler.registry.device("gpu-1")
    assert occupancy.max_worthwhile(gpu) == 2
    assert occupancy.stretch(gpu, 2) == pytest.approx(1.28, abs=0.1)


def test_hole_6_the_switches_restore_published_companions_and_leave_the_pool_as_it_is():
    assert resident(function("f")).scheduler.policy_names[:3] == ("fair_resident", "adaptive", "cost_aware")
    old = resident(function("f"), by_value=False, adaptive=False)
    assert old.scheduler.policy_names[:3] == ("fair_resident", "anticipatory", "lru")
    assert old.scheduler.pool.slots is None


def test_the_window_on_many_equal_nodes_is_the_window_on_one():
    def window(nodes):
        devices = [replace(device(f"gpu-{n}"), node=f"n{n // 4}") for n in range(4 * nodes)]
        harness = resident(function("f", run_s=3, cold_s=0, load_s=0), devices=devices)
        harness.call("f")
        return harness.flow("f").domain.policy._window.size

    assert window(20) == window(1) == 12 * 3 / 4  # twelve charges of 3 s, on 4 devices
