"""Storage on disk, pages for strangers and the addresses of the gateway: an attacker harms no neighbour."""

import contextlib
import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from small_disks import fill_up, small_disk
from tenants import Tenants

from aliquot.testing.client import check
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

LISTENER = """
import socket
def main(args):
    tried = {}
    for family, address in ((socket.AF_INET6, "::1"), (socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address, args["port"]))
                one.listen()
            tried[address] = "bound"
        except OSError as error:
            tried[address] = error.strerror
    return tried
"""


@pytest.fixture(scope="module")
def server_options():
    return ("--devices", "host:1", "--limit", "unwritten_bytes=4MiB")


# --- what strangers may read ---------------------------------------------------------------------------------


def test_strangers_learn_no_names_of_tenants_and_actions(tenants):
    tenants.check_neighbour()
    for path in ("/metrics", "/", "/health", "/openapi.json", "/api/v1", "/docs"):
        page = check(httpx.get(f"{tenants.server.url}{path}")).text
        assert "neighbour" not in page, path
        assert "attacker" not in page, path
    assert 'action="answer",namespace="neighbour"' in tenants.server.metrics()
    assert tenants.attacker.get(f"{tenants.server.url}/metrics").status_code == 401


def test_tenants_learn_no_path_of_the_machine_when_the_store_fails(tmp_path):
    with (
        small_disk(tmp_path / "disk", "16m") as disk,
        LiveServer(disk / "data") as server,
        server.client() as client,
    ):
        client.deploy("echo", "def main(args):\n    return {}\n")
        filler = fill_up(disk)

        def write():
            answers = [client.post("actions/echo", json={"x": "y" * 10000}), httpx.get(f"{server.url}/health")]
            return [answer for answer in answers if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE]

        refusals = wait_until(write, what="a refusal because the disk is full", pause_s=0)
        for refusal in refusals:
            assert "full" in refusal.text
            assert str(tmp_path) not in refusal.text
            assert "aliquot.db" not in refusal.text
        assert str(disk) in server.log.read_text()  # the operator learns which disk
        filler.unlink()


# --- the gateway's addresses -----------------------------------------------------------------------------------


def test_a_function_cannot_listen_on_the_other_address_of_localhost(tenants):
    port = int(tenants.server.url.rpartition(":")[2])
    tenants.attacker.deploy("listener", LISTENER)
    tried = tenants.attacker.result("listener", {"port": port})
    # It may bind the port in a network of its own. Clients reach the gateway on both addresses all the same.
    for address in ("127.0.0.1", "[::1]"):
        assert check(httpx.get(f"http://{address}:{port}/health")).json()["status"] == "ok", tried


def test_a_server_does_not_start_where_another_program_has_the_other_address(tmp_path):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "aliquot", "up", "--data", tmp_path / "data", "--port", str(port)]
        refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert f"[::1]:{port} cannot be listened on" in " ".join(refused.stderr.split())


# --- records and events ---------------------------------------------------------------------------------------------


@pytest.mark.budget("records")
def test_one_tenants_results_push_out_no_record_of_another(tmp_path):
    """The server prunes when it starts, and then every minute."""
    server = LiveServer(tmp_path / "data", "--keep-size", "8MiB")
    with server:
        keys = [server.create_namespace(name) for name in ("neighbour", "attacker")]
        with server.client(keys[0]) as neighbour, server.client(keys[1]) as attacker:
            neighbour.deploy("answer", "def main(args):\n    return {'answer': 42}\n")
            ids = [neighbour.call("answer", {})["activationId"] for _ in range(5)]
            attacker.deploy("flood", "def main(args):\n    return {'x': 'y' * 900_000}\n")
            for _ in range(20):
                attacker.result("flood", {})
    with server, server.client(keys[0]) as neighbour, server.client(keys[1]) as attacker:
        left = wait_until(
            lambda: attacker.get("activations", params={"count": "true"}).json()["activations"],
            lambda count: count < 10,
            what="the attacker's oldest records to be removed",
        )
        assert left > 5  # it has what the others leave
        Tenants(server, attacker, neighbour).check_neighbour()
        assert [neighbour.get(f"activations/{one}").status_code for one in ids] == [200] * 5


@pytest.mark.budget("reads of records")
def test_a_tenant_that_lists_large_records_all_the_time_keeps_nobody_waiting(tenants):
    attacker = tenants.attacker
    attacker.deploy("flood", "def main(args):\n    return {'x': 'y' * 900_000}\n")
    for _ in range(20):  # this server lets few results wait for the disk
        wait_until(
            lambda: attacker.post("actions/flood", params={"blocking": "true"}, json={}).is_success,
            what="a large record",
        )
    refused = wait_until(
        lambda: attacker.get("activations", params={"docs": "true", "limit": 20}),
        lambda answer: not answer.is_success,
        what="all records to be on disk",
    )
    assert (refused.status_code, "Ask for fewer with 'limit'" in refused.text) == (413, True)
    before, stop = resident_bytes(tenants.server), threading.Event()

    def read():
        while not stop.is_set():
            for docs, limit in (("true", 15), ("false", 20)):
                check(attacker.get("activations", params={"docs": docs, "limit": limit}))

    with ThreadPoolExecutor(6) as pool:
        reading = [pool.submit(read) for _ in range(6)]
        tenants.check_neighbour()
        accepted = check(tenants.neighbour.post("actions/answer", json={"x": "y" * 10_000})).json()["activationId"]
        wait_until(
            lambda: tenants.neighbour.get(f"activations/{accepted}"),
            lambda answer: answer.is_success,
            what="a call of the neighbour's whose payload is read from disk",
        )
        stop.set()
        for each in reading:
            each.result()
    assert resident_bytes(tenants.server) - before < 300_000_000, "six pages of 15 MB, each once or twice"


def resident_bytes(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.budget("rules")
def test_one_event_is_stored_once_however_many_rules_it_has(tenants):
    server, attacker = tenants.server, tenants.attacker
    attacker.deploy("size", "def main(args):\n    return {'n': len(args['x']), 'more': args['more']}\n",
                    parameters=[{"key": "more", "value": 1}])  # fmt: skip
    check(attacker.put("triggers/t", json={}))
    answers = [attacker.put(f"rules/r{n}", json={"trigger": "/_/t", "action": "/_/size"}) for n in range(101)]
    assert [answer.status_code for answer in answers] == [200] * 100 + [429]
    assert "Too many rules" in answers[100].text
    before = stored_bytes(server)
    fired = check(attacker.post("triggers/t", json={"x": "y" * 1_000_000})).json()["activationId"]
    grown = stored_bytes(server) - before
    assert grown < 20_000_000, f"one event of a megabyte took {grown} bytes"
    tenants.check_neighbour()
    record = wait_until(
        lambda: attacker.get(f"activations/{fired}"), lambda answer: answer.is_success, what="its record"
    )
    calls = [json.loads(line)["activationId"] for line in record.json()["logs"]]
    for one in calls[:3]:
        ended = wait_until(
            lambda one=one: attacker.get(f"activations/{one}"), lambda answer: answer.is_success, what="a rule's call"
        )
        assert ended.json()["response"]["result"] == {"n": 1_000_000, "more": 1}


def stored_bytes(server):
    """Return the bytes of the database and of its log."""
    return sum(path.stat().st_size for path in server.data.glob("aliquot.db*"))


# --- the operator's token and the database file --------------------------------------------------------------------


def test_the_operators_token_survives_a_restart_and_an_emptied_database_is_refused(tmp_path):
    server = LiveServer(tmp_path / "data")
    with server:
        token = server.operator
        assert (tmp_path / "data" / "operator.token").read_text().strip() == token
    with server:
        assert server.operator == token
        new = server.operate("POST", "token")["token"]
        assert server.operator == new != token
        assert server.operate("GET", "namespaces")
    (tmp_path / "data" / "aliquot.db").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"aliquot\.db is empty"):
        server.start()


# --- the disk --------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "small", "60m") as place:
        yield place


@pytest.mark.budget("disk of a namespace")
def test_a_namespace_keeps_no_more_than_its_limit(tenants):
    server, attacker = tenants.server, tenants.attacker
    used = {"exec": {"kind": "python:3.11", "code": f"x = '{'y' * 900_000}'\ndef main(args):\n    return {{}}\n"}}
    server.operate("PATCH", "namespaces/attacker", json={"keptBytes": 3_000_000})
    try:
        answers = [attacker.put(f"actions/large{number}", json=used) for number in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 413]
        assert "of at most 2.9 MiB" in answers[3].json()["error"]
        refused = attacker.post("actions/large0", json={"x": "y" * 900_000})
        assert refused.status_code == httpx.codes.TOO_MANY_REQUESTS
        assert "of at most 2.9 MiB" in refused.json()["error"]
        tenants.check_neighbour()
        assert attacker.delete("actions/large0").is_success
        assert attacker.put("actions/large3", json=used).is_success
    finally:
        server.operate("PATCH", "namespaces/attacker", json={"keptBytes": None})


@pytest.mark.budget("disk")
def test_a_tenant_that_fills_the_disk_stops_nobody(disk):
    with LiveServer(disk / "data", "--limit", "disk_reserve_bytes=8MiB") as server:
        keys = [server.create_namespace(name) for name in ("neighbour", "attacker")]
        with server.client(keys[0]) as neighbour, server.client(keys[1]) as attacker:
            neighbour.deploy("answer", "def main(args):\n    return {'answer': 42}\n")
            code = f"x = '{'y' * 3_000_000}'\ndef main(args):\n    return {{}}\n"
            body = {"exec": {"kind": "python:3.11", "code": code}}
            for number in range(40):
                answer = attacker.put(f"actions/large{number}", json=body)
                if not answer.is_success:
                    break
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert "almost full" in answer.json()["error"]
            record = neighbour.call("answer", {})
            assert record["response"]["result"] == {"answer": 42}
            accepted = check(neighbour.post("actions/answer", json={})).json()["activationId"]
            for one in (record["activationId"], accepted):
                wait_until(
                    lambda one=one: neighbour.get(f"activations/{one}"),
                    lambda answer: answer.is_success,
                    what="the neighbour's record",
                )
            Tenants(server, attacker, neighbour).check_neighbour()
            assert check(httpx.get(f"{server.url}/health")).json()["status"] == "ok"


@contextmanager
def stalled_disk(server):
    """Keep the store from writing for a moment that is shorter than it waits before it reports a failure."""
    with contextlib.closing(sqlite3.connect(server.data / "aliquot.db", isolation_level=None, timeout=10)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


@pytest.mark.budget("results that wait for the disk")
def test_results_that_wait_for_the_disk_keep_only_their_own_tenant_waiting(tenants):
    attacker = tenants.attacker
    attacker.deploy("large", "def main(args):\n    return {'x': 'y' * args['size']}\n")
    tenants.check_neighbour()
    attacker.result("large", {"size": 1})
    seen = set()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):  # until the attacker was fast enough for once
            with stalled_disk(tenants.server):
                until = time.monotonic() + 0.5

                def flood(_, until=until):
                    statuses = set()
                    while time.monotonic() < until:
                        answer = attacker.post("actions/large", params={"blocking": "true"}, json={"size": 900_000})
                        statuses.add((answer.status_code, "wait to be written" in answer.text))
                    return statuses

                floods = [pool.submit(flood, number) for number in range(4)]
                while time.monotonic() < until:
                    tenants.neighbour.result("answer", {})
                    assert httpx.get(f"{tenants.server.url}/health").status_code == httpx.codes.OK
                seen.update(*(one.result() for one in floods))
            if (429, True) in seen:
                break
    tenants.check_neighbour()
    assert seen == {(200, False), (429, True)}
    wait_until(lambda: attacker.post("actions/large", json={"size": 1}).is_success, what="the records to be written")
