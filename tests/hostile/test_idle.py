"""Idle sandboxes, CPU time, host memory and slots: one tenant's calls and leftovers leave the other its part."""

import os

import pytest

from aliquot.testing.client import CallError
from aliquot.testing.waiting import wait_until

SLEEP_CODE = """
import time
def main(args):
    time.sleep(args.get("seconds", 0))
    return {}
"""
SLOTS = 2


@pytest.fixture(scope="module")
def server_options():
    return ("--devices", "host:1", "--cpu-slots", str(SLOTS))


def running(server, tenant):
    """Return the number of the tenant's calls in flight."""
    flows = server.operate("GET", "status")["flows"]
    return sum(flow["in_flight"] for flow in flows if flow["tenant"] == tenant)


def machine_mb():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


def test_a_memory_limit_above_the_machines_memory_is_refused(tenants):
    too_much = machine_mb() + 1
    with pytest.raises(CallError, match=rf"memory size {too_much} MB exceeds allowed threshold of \d+ MB"):
        tenants.attacker.deploy("large", SLEEP_CODE, limits={"memory": too_much})


def test_a_group_that_needs_more_than_the_machines_memory_is_refused(tenants):
    half = machine_mb() // 2 + 1
    group = [{"key": "group", "value": "large"}]
    tenants.attacker.deploy("one", SLEEP_CODE, limits={"memory": half}, annotations=group)
    expected = rf"limits.memory: {half} MB is more than this machine has beside the {half} MB of the other functions"
    with pytest.raises(CallError, match=expected):
        tenants.attacker.deploy("two", SLEEP_CODE, limits={"memory": half}, annotations=group)
    tenants.attacker.delete("actions/one")


@pytest.mark.budget("host memory")
def test_functions_with_large_memory_limits_stop_their_own_tenants_idle_sandboxes_alone(tenants):
    tenants.check_neighbour()
    for name in ("a", "b", "c", "d", "e"):
        tenants.attacker.deploy(name, SLEEP_CODE, limits={"memory": machine_mb() // 2 - 1024})
        tenants.attacker.result(name, {})
    status = tenants.server.operate("GET", "status")
    assert "answer" in [sandbox["function"] for sandbox in status["sandboxes"]]
    for name in ("a", "b", "c", "d", "e"):
        tenants.attacker.delete(f"actions/{name}")


@pytest.mark.budget("slots of the `cpu` device")
def test_sleeping_calls_on_every_slot_do_not_keep_a_neighbours_call_waiting(tenants):
    tenants.attacker.deploy("sleep", SLEEP_CODE)
    calls = [tenants.attacker.post("actions/sleep", json={"seconds": 60}).json() for _ in range(2 * SLOTS)]
    wait_until(lambda: running(tenants.server, "attacker"), lambda n: n == SLOTS, what="sleeping calls on all slots")
    tenants.check_neighbour()
    records = [tenants.attacker.get(f"activations/{call['activationId']}") for call in calls]
    assert [record.status_code for record in records] == [404] * len(calls)  # they sleep on, and the others wait
    for call in calls:
        tenants.attacker.delete(f"activations/{call['activationId']}")
