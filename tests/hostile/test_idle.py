"""Idle sandboxes, CPU time, host memory and slots: one tenant's calls and leftovers leave the other its part."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aliquot.live.node.sandbox_resources import tag_of
from aliquot.testing.client import CallError
from aliquot.testing.server import LiveServer, alive
from aliquot.testing.waiting import wait_until

SLEEP_CODE = """
import time
def main(args):
    time.sleep(args.get("seconds", 0))
    return {}
"""
# A thread and children compute on after the call has returned. The next call says how much they have used.
LEFT_BEHIND_CODE = """
import os, resource, threading, time
children = []
def spin():
    while True:
        pass
def used(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
def main(args):
    for _ in range(args.get("children", 0)):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            spin()
        children.append(pid)
    if args.get("children"):
        threading.Thread(target=spin, daemon=True).start()
    return {"used_s": time.process_time() + sum(map(used, children))}
"""
# All processes of a call compute on one core until that time, each in a session of its own.
SPIN_CODE = """
import os, resource, time
def main(args):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    before_s = used_s()
    forks = [pid for _ in range(args["processes"] - 1) if (pid := os.fork()) or spin(args["until"])]
    spin(args["until"], stay=True)
    for pid in forks:
        os.waitpid(pid, 0)
    return {"used_s": used_s() - before_s}
def used_s():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
def spin(until, stay=False):
    if not stay:
        os.setsid()
    while time.time() < until:
        pass
    if not stay:
        os._exit(0)
"""
SLOTS = 2
LARGE_NAMES = ("a", "b", "c", "d", "e")


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
    for name in LARGE_NAMES:
        tenants.attacker.deploy(name, SLEEP_CODE, limits={"memory": machine_mb() // 2 - 1024})
        tenants.attacker.result(name, {})
    calls = [tenants.attacker.post(f"actions/{name}", json={"seconds": 60}).json() for name in LARGE_NAMES]
    wait_until(lambda: running(tenants.server, "attacker"), lambda count: count, what="sandboxes with large limits")
    status = tenants.server.operate("GET", "status")
    assert "answer" in [sandbox["function"] for sandbox in status["sandboxes"]]
    tenants.check_neighbour()
    for name, call in zip(LARGE_NAMES, calls, strict=True):
        tenants.attacker.delete(f"activations/{call['activationId']}")
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


def test_what_a_call_leaves_behind_uses_no_processor_time(tenants):
    tenants.attacker.deploy("leaver", LEFT_BEHIND_CODE)
    used_s = tenants.attacker.result("leaver", {"children": 3})["used_s"]
    time.sleep(2)
    assert tenants.attacker.result("leaver", {})["used_s"] - used_s < 0.5  # at least 1 s without freezing
    tenants.attacker.delete("actions/leaver")


def test_a_tenants_processes_share_the_weight_of_their_tenant(tenants):
    for client in (tenants.attacker, tenants.neighbour):
        client.deploy("spin", SPIN_CODE)
        client.result("spin", {"processes": 1, "until": 0})
    until = time.time() + 2
    with ThreadPoolExecutor() as pool:
        attack = pool.submit(tenants.attacker.result, "spin", {"processes": 16, "until": until})
        used_s = tenants.neighbour.result("spin", {"processes": 1, "until": until})["used_s"]
    assert used_s > 0.5 * attack.result()["used_s"]  # 1/16 without groups


def test_the_weight_of_a_namespace_divides_the_processors(tenants):
    tenants.server.operate("PATCH", "namespaces/neighbour", json={"weight": 4})
    until = time.time() + 2
    with ThreadPoolExecutor() as pool:
        attack = pool.submit(tenants.attacker.result, "spin", {"processes": 2, "until": until})
        used_s = tenants.neighbour.result("spin", {"processes": 1, "until": until})["used_s"]
    assert used_s > 2 * attack.result()["used_s"]  # about 4 times


def test_leftovers_of_a_sandbox_that_is_called_all_the_time_share_the_weight_of_their_tenant(tenants):
    """Such a sandbox is never frozen. Its status shows what its leftovers have used."""
    tenants.attacker.deploy("leaver", LEFT_BEHIND_CODE)
    tenants.attacker.result("leaver", {"children": 12})
    until = time.time() + 2
    with ThreadPoolExecutor() as pool:
        spinning = pool.submit(tenants.neighbour.result, "spin", {"processes": 2, "until": until})
        while time.time() < until:
            left_s = tenants.attacker.result("leaver", {})["used_s"]
        used_s = spinning.result()["used_s"]
    assert used_s > 0.5 * left_s / (os.cpu_count() or 1)  # one core of several, against 13 processes
    status = tenants.server.operate("GET", "status")["sandboxes"]
    assert next(one["cpu_s"] for one in status if one["function"] == "leaver") > 0.5 * left_s
    tenants.attacker.delete("actions/leaver")


def test_processes_that_serve_all_tenants_have_a_processor_group_of_their_own(tenants, tmp_path):
    (tmp_path / "one.txt").write_text("hello")
    tenants.server.operate("PUT", "datasets/mine", json={"url": str(tmp_path)})
    services = Path("/sys/fs/cgroup/cpu", tag_of(tenants.server.data), "services")
    groups = wait_until(
        lambda: {path.name: (path / "cgroup.procs").read_text().split() for path in services.glob("*/")},
        lambda groups: len(groups) > 1 and all(groups.values()),
        what="the groups of the storage agent and the relay",
    )
    assert set(groups) == {"relay", "storage"}
    assert (services / "cpu.shares").read_text() == "4096\n"
    commands = {name: Path(f"/proc/{pids[0]}/cmdline").read_text() for name, pids in groups.items()}
    assert "storage.agent" in commands["storage"]
    assert "network.process" in commands["relay"]
    tenants.check_neighbour()


def test_the_server_outweighs_the_functions_of_all_tenants(tenants):
    """It sends runs to several sandboxes in a row. None of them may take the processor from it before the last."""
    top = Path("/sys/fs/cgroup/cpu", tag_of(tenants.server.data))
    tenants.check_neighbour()  # so that there is a sandbox
    wait_until(
        lambda: (top / "server" / "cgroup.procs").read_text().split(),
        lambda pids: str(tenants.server.process.pid) in pids,
        what="the server to be in its group",
    )
    weight, of_tenants = (int((top / name / "cpu.shares").read_text()) for name in ("server", "tenants"))
    assert weight == 2 * of_tenants
    sandboxes = {one["pid"] for one in tenants.server.operate("GET", "status")["sandboxes"]}
    assert not sandboxes & {int(pid) for pid in (top / "server" / "cgroup.procs").read_text().split()}


def test_a_server_that_has_stopped_leaves_no_control_groups(tmp_path):
    with LiveServer(tmp_path / "data", "--devices", "host:1") as server, server.client() as client:
        client.deploy("sleep", SLEEP_CODE)
        client.result("sleep", {})
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{tag_of(server.data)}"))


def test_frozen_sandboxes_end_with_a_server_that_is_killed(tmp_path):
    server = LiveServer(tmp_path / "data").start()
    try:
        server.deploy("leaver", LEFT_BEHIND_CODE)
        with server.client() as client:
            client.result("leaver", {"children": 2})
        groups = Path("/sys/fs/cgroup/freezer", tag_of(server.data))
        wait_until(
            lambda: [state.read_text() for state in groups.glob("[0-9]*/freezer.state")],
            lambda states: "FROZEN\n" in states,
            what="the sandbox to be frozen",
        )
        pids = server.descendants()
    finally:
        server.kill()
    wait_until(lambda: [pid for pid in pids if alive(pid)], lambda left: not left, what="all processes to end")
    with LiveServer(server.data) as again, again.client() as client:
        assert client.result("leaver", {})["used_s"] >= 0
