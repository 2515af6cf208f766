"""One greedy tenant for each row of the table of budgets, and a neighbour who is served all the same."""

import ctypes
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sandboxes import strongest
from tenants import rows_of_the_page

from aliquot.runtime.frames import REPLY
from aliquot.testing.server import open_files
from aliquot.testing.waiting import wait_until

MIB = 2**20
RESULT_BYTES = 8 * MIB
MARKED = re.compile(r'^@pytest\.mark\.budget\("([^"]+)"\)', re.MULTILINE)
SDK = [{"key": "sdk", "value": True}]
BUFFERS = """
import aliquot, time
from aliquot.sdk.sandbox import sandbox
app = aliquot.App("greedy")
@app.function()
def take(count, size, seconds=0):
    fds = []
    try:
        for _ in range(count):
            fds.append(sandbox.channel.ask({"allocate": size})[1])
    except Exception as error:
        return {"held": len(fds), "why": str(error)}
    time.sleep(seconds)
    return {"held": len(fds), "why": ""}
"""
UNFINISHED = (
    f"import os, time\ndef main(args):\n    os.write(3, {REPLY.pack(0, False, 0, RESULT_BYTES, 0)!r})\n"
    "    os.write(3, b'x' * 100_000)\n    time.sleep(1000)\n"
)
TAKES = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
class Value(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("pointer", ctypes.c_void_p)]
def main(args):
    global held
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    held = 0
    while held < 1000 and libc.inotify_init1(0) >= 0:
        held += 1
    queued = 0
    while queued < args["signals"] and libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), Value(number=1)) == 0:
        queued += 1
    return {"instances": held, "signals": queued}
"""
FLOOD = 16  # bodies, which take half of the memory for those that arrive
JSON_TYPE = {"Content-Type": "application/json"}
SLEEPS = "import time\ndef main(args):\n    time.sleep(args['s'])\n    return {}\n"
LARGE = "def main(args):\n    return {'text': 'x' * args['size'], 'given': len(args.get('given', ''))}\n"


@pytest.fixture(scope="module")
def server_options():
    limits = {
        "payload_bytes": RESULT_BYTES,
        "bodies_bytes": 64 * MIB,
        "replies_bytes": 64 * MIB,
        "calls_in_flight": 400,
        "entities_per_namespace": 60,
        "alarms_per_namespace": 5,
        "secrets_per_namespace": 5,
        "sessions_per_namespace": 20,
        "objects_per_namespace_bytes": 4 * MIB,
    }
    options = [word for name, value in limits.items() for word in ("--limit", f"{name}={value}")]
    return ("--devices", "host:1", "--cpu-slots", "16", *options)


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def cancel_all(client, activations):
    for activation in activations:
        client.delete(f"activations/{activation}").raise_for_status()


def test_every_row_of_the_table_of_budgets_has_a_test_and_every_test_a_row():
    marked = {name for path in Path(__file__).parent.glob("test_*.py") for name in MARKED.findall(path.read_text())}
    rows = rows_of_the_page()
    assert len(rows) == len(set(rows))
    assert set(rows) == marked, 'each row needs a test with `@pytest.mark.budget("ROW")`, and each such test a row'


@pytest.mark.budget("objects and blobs")
def test_objects_of_one_tenant_leave_the_disk_to_others(tenants):
    stored = [tenants.attacker.put(f"objects/part{number}", content=bytes(MIB) + b"%d" % number) for number in range(6)]
    assert [answer.status_code for answer in stored] == [200, 200, 200, 507, 507, 507]
    assert tenants.neighbour.put("objects/own", content=b"own").status_code == 200
    assert tenants.neighbour.get("objects/own").content == b"own"
    tenants.check_neighbour()


@pytest.mark.budget("shared buffers")
def test_shared_buffers_of_one_tenant_leave_those_of_others_and_the_server_its_descriptors(tenants):
    for client in (tenants.attacker, tenants.neighbour):
        for number in range(8 if client is tenants.attacker else 1):
            client.deploy(f"take{number}", BUFFERS, main="take", annotations=SDK, limits={"memory": 512})
    took = tenants.attacker.result("take0", {"count": 128, "size": 64 * MIB})
    assert took["held"] == 8, took  # within the sandbox's memory limit
    assert "memory limit" in took["why"]
    before = open_files(tenants.server.process.pid)
    for number in range(8):
        assert tenants.attacker.result(f"take{number}", {"count": 128, "size": 1})["held"] == 128
    held = wait_until(
        lambda: open_files(tenants.server.process.pid) - before,
        lambda more: more < 128,
        what="the shared buffers of ended runs to be closed",
    )
    assert held < 128
    holding = {"count": 128, "size": 1, "seconds": 60}
    calls = [tenants.attacker.post(f"actions/take{number}", json=holding).json() for number in range(8)]
    wait_until(
        lambda: open_files(tenants.server.process.pid) - before,
        lambda more: more > 512,
        what="the attacker to hold its shared buffers",
    )
    assert tenants.neighbour.result("take0", {"count": 100, "size": 1})["held"] == 100
    tenants.check_neighbour()
    cancel_all(tenants.attacker, [call["activationId"] for call in calls])


@pytest.mark.budget("reply bytes")
def test_unfinished_replies_of_one_tenant_delay_no_other_tenants_replies(tenants):
    tenants.attacker.deploy("unfinished", UNFINISHED, limits={"timeout": 60_000})
    started = [tenants.attacker.post("actions/unfinished").json()["activationId"] for _ in range(12)]
    tenants.neighbour.deploy("large", LARGE)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda _: tenants.neighbour.result("large", {"size": 2 * MIB}), range(8))
        assert [len(answer["text"]) for answer in answers] == [2 * MIB] * 8
    assert tenants.neighbour.result("large", {"size": 1, "given": "x" * 2 * MIB})["given"] == 2 * MIB
    tenants.check_neighbour()
    cancel_all(tenants.attacker, started)


@pytest.mark.budget("payload bytes")
def test_payloads_of_accepted_calls_wait_on_disk_and_those_of_blocking_calls_have_a_bound(tenants):
    tenants.attacker.deploy("sleeps", SLEEPS, limits={"instances": 1, "timeout": 120_000})
    tenants.neighbour.deploy("large", LARGE)
    before = resident_bytes(tenants.server.process.pid)
    body = {"s": 60, "text": "x" * 700_000}
    accepted = [tenants.attacker.post("actions/sleeps", json=body).json()["activationId"] for _ in range(150)]
    assert resident_bytes(tenants.server.process.pid) - before < 50 * MIB, "105 MB are queued"

    def block(_):
        return tenants.attacker.post("actions/sleeps", params={"blocking": "true", "timeout": 2000}, json=body)

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(block, range(64)))
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert all("payloads: the namespace holds" in answer.json()["error"] for answer in refused)
    assert tenants.neighbour.result("large", {"size": 1, "given": "x" * 2 * MIB})["given"] == 2 * MIB
    tenants.check_neighbour()
    more = [answer.json()["activationId"] for answer in answers if answer.status_code == 202]
    cancel_all(tenants.attacker, [*more, *accepted])


@pytest.mark.budget("JSON checks")
def test_a_flood_of_bodies_that_take_long_to_check_keeps_the_neighbours_body_not_waiting(tenants):
    """The flood is refused, but only at its end. So it costs the attacker no calls."""
    tenants.attacker.deploy("large", LARGE)
    tenants.neighbour.deploy("large", LARGE)
    body = b"{" + b"".join(b'"%x":0,' % number for number in range(150_000)) + b"not JSON"
    answered = []

    def attack(_):
        answered.append(tenants.attacker.post("actions/large", content=body, headers=JSON_TYPE))

    with ThreadPoolExecutor(FLOOD) as pool:
        attacks = pool.map(attack, range(FLOOD))
        wait_until(lambda: answered, what="the first body to be refused, when most of the others wait")
        assert tenants.neighbour.result("large", {"size": 1, "given": "x" * 2 * MIB})["given"] == 2 * MIB
        before = len(answered)
        list(attacks)
    assert {answer.status_code for answer in answered} == {400}, answered[0].text
    assert before < FLOOD // 2, "the neighbour's body was checked after most of the attacker's"
    tenants.check_neighbour()


@pytest.mark.budget("inotify instances and pending signals")
def test_what_the_kernel_counts_for_a_user_is_divided_by_sandbox(tenants):
    tenants.attacker.deploy("takes", TAKES)
    tenants.neighbour.deploy("takes", TAKES)
    for tenant in (tenants.attacker, tenants.neighbour):  # the attacker's are held until its sandbox ends
        assert tenant.result("takes", {"signals": 10_000}) == {"instances": 4, "signals": 256}
    tenants.check_neighbour()


@pytest.mark.skipif(os.geteuid() != 0 or not strongest().user, reason="sandboxes are processes of the server's user")
def test_what_sandboxes_hold_does_not_count_for_the_servers_user(tenants):
    """The kernel counts inotify instances also for the owners of the namespaces above."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    if limit > 200:
        pytest.skip(f"this machine allows {limit} inotify instances, more than the sandboxes here can take")
    taken = []
    while not taken or taken[-1]:
        tenants.attacker.deploy(f"takes{len(taken)}", TAKES)
        taken.append(tenants.attacker.result(f"takes{len(taken)}", {"signals": 0})["instances"])
        assert len(taken) <= limit
    instance = ctypes.CDLL(None).inotify_init1(0)
    assert instance >= 0
    os.close(instance)


@pytest.mark.budget("calls in flight")
def test_calls_in_flight_of_one_tenant_leave_some_to_others(tenants):
    tenants.attacker.deploy("sleeps", SLEEPS, limits={"instances": 1, "timeout": 120_000})
    answers = [tenants.attacker.post("actions/sleeps", json={"s": 60}) for _ in range(250)]
    accepted = [answer.json()["activationId"] for answer in answers if answer.status_code == 202]
    assert 150 < len(accepted) <= 200
    assert "in flight (count: " in answers[-1].json()["error"]
    tenants.check_neighbour()
    cancel_all(tenants.attacker, accepted)


def until_refused(request, count):
    """Send requests until one is refused, and return the number of those that were not, with the refusal."""
    for number in range(count):
        answer = request(number)
        if not answer.is_success:
            assert answer.status_code == 429
            return number, answer.json()["error"]
    raise AssertionError(f"none of {count} requests was refused")


@pytest.mark.budget("entities")
def test_entities_of_one_tenant_have_a_bound(tenants):
    attacker = tenants.attacker
    exec_ = {"kind": "python:3.11", "code": SLEEPS}
    made, error = until_refused(lambda number: attacker.put(f"actions/many{number}", json={"exec": exec_}), 70)
    assert "allowed: 60" in error
    tenants.check_neighbour()
    for number in range(made):
        attacker.delete(f"actions/many{number}").raise_for_status()


@pytest.mark.budget("names in metrics")
def test_strangers_who_ask_for_metrics_keep_nobody_waiting(tenants):
    """How names are divided is tested with the metrics alone: it takes thousands of actions."""
    stop = threading.Event()

    def ask():
        with httpx.Client() as stranger:
            while not stop.is_set():
                stranger.get(f"{tenants.server.url}/metrics").raise_for_status()

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        tenants.check_neighbour()
        stop.set()
        for each in asking:
            each.result()


@pytest.mark.budget("timers")
def test_timers_of_one_tenant_have_a_bound(tenants):
    def put_alarm(number):
        tenants.attacker.put(f"triggers/timer{number}", json={}).raise_for_status()
        return tenants.attacker.put(f"alarms/timer{number}", json={"minutes": 1})

    made, error = until_refused(put_alarm, 10)
    assert (made, "Too many alarms in the namespace (count: 5, allowed: 5)." in error) == (5, True)
    tenants.neighbour.put("triggers/timer", json={}).raise_for_status()
    tenants.neighbour.put("alarms/timer", json={"minutes": 1}).raise_for_status()
    tenants.check_neighbour()
    for number in range(made + 1):
        tenants.attacker.delete(f"triggers/timer{number}").raise_for_status()


@pytest.mark.budget("secrets")
def test_secrets_of_one_tenant_have_a_bound(tenants):
    variables = {"variables": {"TOKEN": "t" * 60_000}}
    made, error = until_refused(lambda number: tenants.attacker.put(f"secrets/s{number}", json=variables), 10)
    assert (made, "Too many secrets in the namespace (count: 5, allowed: 5)." in error) == (5, True)
    too_large = tenants.attacker.put(
        "secrets/s0", params={"overwrite": "true"}, json={"variables": {"T": "t" * 70_000}}
    )
    assert too_large.status_code == 400
    tenants.neighbour.put("secrets/mine", json=variables).raise_for_status()
    tenants.check_neighbour()


@pytest.mark.budget("sessions")
def test_sessions_of_one_tenant_have_a_bound(tenants):
    url = f"{tenants.server.url}/api/v1/sessions"
    made, error = until_refused(lambda number: tenants.attacker.post(url, json={"name": f"s{number}"}), 30)
    assert (made, "allowed: 20" in error) == (20, True)
    tenants.neighbour.post(url, json={"name": "mine"}).raise_for_status()
    tenants.check_neighbour()
