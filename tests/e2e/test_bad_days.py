"""Bad days of a real server: each has a clear answer, and harms nobody else."""

import base64
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile

import httpx
import pytest
from awaiting import wait_for_record, wait_until_busy
from small_disks import fill_up, small_disk

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer, alive, open_files
from aliquot.testing.waiting import wait_until

ECHO = "def main(args): return args"
SLEEP = "import time\ndef main(args):\n    time.sleep(args['s'])\n    return {'slept': args['s']}"

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    data = tmp_path_factory.mktemp("server") / "data"
    with LiveServer(data) as running:
        running.deploy("echo", ECHO)
        running.deploy("sleep", SLEEP)
        yield running
    assert running.process.returncode == 0
    assert replay_file(data).differences == []


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client
        still = client.post("actions/echo", params={"blocking": "true", "result": "true"}, json={"still": "there"})
        assert still.json() == {"still": "there"}


def call(client, name, payload=None, **params):
    return client.post(f"actions/{name}", params={"blocking": "true", **params}, json=payload or {})


# --- requests --------------------------------------------------------------------------------------------


def test_malformed_json(client):
    headers = {"content-type": "application/json"}
    answer = client.post("actions/echo", params={"blocking": "true"}, content=b'{"a":', headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("The request content was malformed:\n")
    assert answer.json()["code"] == answer.headers["x-request-id"]


@pytest.mark.usefixtures("client")
def test_a_huge_body_is_refused_before_it_is_read(server):
    with socket.create_connection(httpx.URL(server.url).netloc.decode().split(":")) as raw:
        credentials = base64.b64encode(server.key.encode()).decode()
        raw.sendall(
            "POST /api/v1/namespaces/_/actions/echo?blocking=true HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Basic {credentials}\r\nContent-Type: application/json\r\n"
            "Content-Length: 999999999999\r\n\r\n{".encode()
        )
        assert b" 413 " in raw.recv(4096).splitlines()[0]


@pytest.mark.usefixtures("client")
def test_a_client_that_sends_nothing_is_let_go(server):
    with socket.create_connection(httpx.URL(server.url).netloc.decode().split(":")) as raw:
        raw.sendall(b"POST /api/v1/namespaces/_/actions/echo HT")
        assert b" 408 " in raw.recv(4096).splitlines()[0]
        assert raw.recv(4096) == b""


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "a%00b", "%ff", "a/../../b"])
def test_names_that_try_to_leave_their_place(server, name):
    user, _, secret = server.key.partition(":")
    for method in ("GET", "PUT", "DELETE", "POST"):
        url = httpx.URL(server.url).copy_with(raw_path=f"/api/v1/namespaces/_/actions/{name}".encode())
        answer = httpx.request(method, url, auth=(user, secret), json={} if method in {"PUT", "POST"} else None)
        assert 400 <= answer.status_code < 500, (method, answer.text)
        assert answer.json()["error"]


def test_a_caller_that_goes_away_leaves_its_record(client):
    with pytest.raises(httpx.ReadTimeout):
        client.post("actions/sleep", params={"blocking": "true"}, json={"s": 0.4}, timeout=0.1)
    found = wait_until(
        lambda: client.get("activations", params={"name": "sleep", "limit": 1}).json(), what="the record"
    )
    assert found[0]["statusCode"] == 0


# --- code ------------------------------------------------------------------------------------------------


def test_code_that_does_not_compile(server, client):
    server.deploy("broken", "def main(args)\n    return args")
    answer = call(client, "broken")
    assert answer.status_code == 502
    record = client.get(f"activations/{answer.json()['activationId']}").json()
    assert record["response"]["status"] == "action developer error"
    assert any("SyntaxError" in line for line in record["logs"])


def test_a_zip_bomb(server, client):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", "def main(args): return args")
        archive.writestr("zeroes", bytes(600 * 2**20))
    server.deploy("bomb", base64.b64encode(packed.getvalue()).decode())
    answer = call(client, "bomb")
    assert answer.status_code == 502
    assert answer.json()["response"]["status"] == "action developer error"


def test_a_sandbox_killed_in_the_middle_of_a_run(server, client):
    server.deploy("suicide", "import os, signal\ndef main(args): os.kill(os.getpid(), signal.SIGKILL) or os._exit(9)")
    answer = call(client, "suicide")
    assert answer.status_code == 502
    text = answer.json()["response"]["result"]["error"]
    assert text == "The action did not produce a valid response and exited unexpectedly."


def test_every_process_of_the_server_may_be_killed(server, client):
    """All zygotes and sandboxes at once: calls in flight say so, later ones find new ones."""
    call(client, "echo")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call(client, "sleep", {"s": 30})))
    thread.start()
    wait_until_busy(server, "sleep")
    for pid in server.descendants():
        if alive(pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    thread.join()
    assert answers[0].status_code == 502
    assert call(client, "echo", {"a": 1}, result="true").json() == {"a": 1}


def test_one_tenants_flood_leaves_another_its_turn(server, client):
    key = server.create_namespace("other")
    flood = [client.post("actions/sleep", json={"s": 0.3}).json()["activationId"] for _ in range(100)]
    with server.client(key) as other:
        body = {"exec": {"kind": "python:3.11", "code": ECHO}}
        other.put("actions/mine", json=body).raise_for_status()
        assert call(other, "mine", {"my": "turn"}, result="true").json() == {"my": "turn"}
    waiting = sum(client.get(f"activations/{activation}").status_code == 404 for activation in flood)
    assert waiting, "the other tenant was served while the flood still waited"
    for activation in flood:
        wait_for_record(client, activation)


# --- the machine -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("client")
def test_a_second_server_on_the_same_data_is_told(server):
    command = [sys.executable, "-m", "aliquot", "up", "--data", str(server.data), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert f"in use by another server (pid {server.process.pid})" in second.stderr


@pytest.mark.usefixtures("client")
def test_a_port_that_is_taken_is_named(server, tmp_path):
    port = httpx.URL(server.url).port
    command = [sys.executable, "-m", "aliquot", "up", "--data", str(tmp_path), "--port", str(port)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert f"--port: 127.0.0.1:{port}" in second.stderr


def test_a_store_that_another_process_has_locked(tmp_path):
    with LiveServer(tmp_path / "data") as running:
        running.deploy("echo", ECHO)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOLD,
            str(tmp_path / "data" / "aliquot.db"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    holder.stdout.readline()
    command = [sys.executable, "-m", "aliquot", "up", "--data", str(tmp_path / "data"), "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    holder.communicate()
    assert refused.returncode == 2
    assert "lock" in refused.stderr
    with LiveServer(tmp_path / "data") as running, running.client() as client:
        assert call(client, "echo", {"a": 1}, result="true").json() == {"a": 1}


def test_a_full_disk_is_said_and_got_over(tmp_path):
    with small_disk(tmp_path / "disk", "24m") as disk:
        with LiveServer(disk / "data") as running, running.client() as client:
            running.deploy("echo", ECHO)
            filler = fill_up(disk)

            def write():
                return client.post("actions/echo", json={"x": "y" * 10000})

            answer = wait_until(write, lambda answer: answer.status_code != 202, what="the disk to be full", pause_s=0)
            assert answer.status_code == 503
            assert "full" in answer.json()["error"]
            # A smaller write may still find room, and then all is well until the next large one.
            health = wait_until(
                lambda: write() and httpx.get(f"{running.url}/health"),
                lambda health: health.status_code == 503,
                what="the server to be unwell",
                pause_s=0,
            )
            assert "full" in health.text
            seen = client.get(f"{running.url}/api/v1/observe/activations", params={"name": "echo"})
            assert (seen.status_code, len(seen.json()["calls"]) > 0) == (200, True), "history is read, not written"
            filler.unlink()
            wait_until(
                lambda: httpx.get(f"{running.url}/health"),
                lambda health: health.is_success,
                what="the server to be well",
            )
            assert call(client, "echo", {"a": 1}, result="true").json() == {"a": 1}
        assert replay_file(disk / "data").differences == []


def test_a_stop_under_load_answers_what_it_has_taken(tmp_path):
    server = LiveServer(tmp_path / "data").start()
    server.deploy("sleep", SLEEP)
    answers, refused = [], []

    def work():
        with server.client() as client:
            while True:
                try:
                    answers.append(call(client, "sleep", {"s": 0.05}).status_code)
                except httpx.TransportError as error:
                    refused.append(error)
                    return

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    with server.client() as client:
        queued = [client.post("actions/sleep", json={"s": 0.2}).json()["activationId"] for _ in range(40)]
    time.sleep(0.3)
    children = server.descendants()
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    assert set(answers) == {200}
    # A connection that is closed between two calls looks like one of these; an answer cut short would not.
    assert {type(error) for error in refused} <= {httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError}
    assert not [pid for pid in children if alive(pid)]
    assert not (tmp_path / "data" / "local.json").exists()
    with server, server.client() as client:
        for activation in queued:
            record = wait_for_record(client, activation)
            assert record["response"]["success"], record
    assert replay_file(tmp_path / "data").differences == []


def test_file_handles_return_to_where_they_were(server, client):
    """Some files are opened once, such as those of profiles. A leak would leave some of each function."""
    call(client, "echo")
    opened_once, functions = 10, 20
    most = open_files(server.process.pid) + opened_once
    for number in range(functions):
        server.deploy(f"once{number}", ECHO)
        call(client, f"once{number}")
        client.delete(f"actions/once{number}")
    wait_until(lambda: open_files(server.process.pid), lambda count: count <= most, what="files to be closed")


def test_a_namespace_made_anew_does_not_see_what_the_old_one_did(server, client):
    operator = {"authorization": f"Bearer {server.operator}"}
    old = server.create_namespace("phoenix")
    with server.client(old) as first:
        first.put("actions/echo", json={"exec": {"kind": "python:3.11", "code": ECHO}}).raise_for_status()
        secret = call(first, "echo", {"secret": 1}).json()["activationId"]
        assert len(first.get("activations").json()) == 1
    httpx.delete(f"{server.url}/operator/v1/namespaces/phoenix", headers=operator).raise_for_status()
    new = server.create_namespace("phoenix")
    with server.client(old) as first:
        assert first.get("activations").status_code == 401
    with server.client(new) as second:
        assert second.get("activations").json() == []
        assert second.get("activations", params={"count": "true"}).json() == {"activations": 0}
        assert second.get(f"activations/{secret}").status_code == 404
        assert second.get("actions/echo").status_code == 404
    assert call(client, "echo").status_code == 200
