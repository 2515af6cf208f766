"""Extra slots of the `cpu` device: one tenant's long calls do not keep the others waiting."""

from random import Random
from types import SimpleNamespace

import pytest

from aliquot.core.commands import Dispatch, Run
from aliquot.core.errors import EventError
from aliquot.core.events import DeviceAdded, FunctionDeployed
from aliquot.core.model import DeviceSpec
from aliquot.core.tenant_slots import MAX_ATTEMPTS, TenantSlots
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import function
from aliquot.testing.harness import Harness, of_type

TENANTS = ("greedy", "ann", "bob", "cid", "dan", "eve")


def scheduler(policy="fair_resident", slots=4, extra=4):
    harness = Harness(policy, devices=[DeviceSpec("cpu", "cpu", None, slots, extra_slots=extra)])
    names = [f"f{number}" for number in range(12)]
    harness.send(*(FunctionDeployed(tenant, function(name, share=0)) for tenant in TENANTS for name in names))
    return harness


def fill(harness, calls=12):
    """Let the greedy tenant take every slot with calls of different functions that never end."""
    running = []
    for number in range(calls):
        running += of_type(Run, harness.ready(harness.call(f"f{number}", tenant="greedy")))
    return running


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_tenant_with_nothing_running_is_served_when_another_holds_all_slots(policy):
    harness = scheduler(policy)
    assert len(fill(harness)) == 4
    (dispatch,) = of_type(Dispatch, harness.call("f0", tenant="ann"))
    assert harness.scheduler.invocations[dispatch.invocation].flow.key.tenant == "ann"
    assert harness.scheduler.registry.devices["cpu"].running == 5


def test_without_extra_slots_it_waits():
    harness = scheduler(extra=0)
    fill(harness)
    assert of_type(Dispatch, harness.call("f0", tenant="ann")) == []


def test_the_tenant_that_holds_the_slots_gets_no_extra_one():
    harness = scheduler()
    fill(harness)
    assert harness.scheduler.registry.devices["cpu"].running == 4


def test_a_tenant_may_hold_several_extra_slots_but_leaves_room_for_others():
    harness = scheduler(slots=8, extra=8)
    fill(harness, 12)
    taken = [
        len(of_type(Dispatch, harness.call(*(f"f{number}" for number in range(8)), tenant=tenant)))
        for tenant in TENANTS[1:]
    ]
    assert taken == [3, 2, 1, 1, 1]  # fewer than half of those that are free, and at least one


def test_an_extra_slot_goes_to_the_tenant_with_the_fewest_calls_in_flight():
    harness = scheduler(slots=2, extra=2)
    fill(harness, 4)
    assert len(of_type(Dispatch, harness.call("f0", "f1", tenant="ann"))) == 1
    harness.call("f0", tenant="bob")
    assert harness.scheduler.registry.tenant_slots.held == {"greedy": 2, "ann": 1, "bob": 1}
    assert of_type(Dispatch, harness.call("f0", tenant="cid")) == []
    (following,) = of_type(Dispatch, harness.finish("0"))
    assert harness.scheduler.invocations[following.invocation].flow.key.tenant == "cid"


def test_a_warm_sandbox_is_used_beyond_the_limit():
    harness = scheduler()
    harness.run_all(harness.call("f0", tenant="ann"))
    fill(harness)
    (dispatch,) = of_type(Dispatch, harness.call("f0", tenant="ann"))
    assert str(dispatch.start) == "warm"


def test_extra_slots_are_for_cpu_devices_alone():
    harness = scheduler()
    with pytest.raises(EventError, match="extra_slots 2"):
        harness.send(DeviceAdded(DeviceSpec("gpu-1", extra_slots=2)))


def test_candidates_are_in_the_order_of_held_slots_and_then_of_the_last_change():
    """Ranks are brought up to date only when candidates are asked for, and must be the same as if always."""
    random = Random(0)
    slots = TenantSlots()
    slots.add_device(SimpleNamespace(slots=2, spec=SimpleNamespace(extra_slots=40)))
    queued, held, order = {tenant: [] for tenant in TENANTS}, dict.fromkeys(TENANTS, 0), dict.fromkeys(TENANTS)
    for number in range(3000):
        tenant, act = random.choice(TENANTS), random.choice(["enqueue", "remove", "take", "free"])
        changed = False
        if act == "enqueue":
            call = SimpleNamespace(id=str(number), flow=SimpleNamespace(key=(tenant, "f")))
            changed = not queued[tenant]
            queued[tenant].append(call)
            slots.enqueue(call)
        elif act == "remove" and queued[tenant]:
            slots.remove(queued[tenant].pop(random.randrange(len(queued[tenant]))))
        elif act == "take" and held[tenant] < 4:
            held[tenant] += 1
            changed = True
            slots.take(tenant)
        elif act == "free" and held[tenant]:
            held[tenant] -= 1
            changed = True
            slots.free(tenant)
        if changed and queued[tenant]:
            order.pop(tenant)
            order[tenant] = None
        if number % random.choice([1, 7]) == 0:
            room, full = slots.slots + slots.extra - sum(held.values()), sum(held.values()) >= slots.slots
            expected = [
                queued[each][0]
                for rank in range(5)
                if not rank or (full and 2 * rank < room)
                for each in [one for one in order if held[one] == rank and queued[one]][:MAX_ATTEMPTS]
            ]
            assert list(slots.candidates()) == expected
