"""The platform as its users meet it: one real server, each of the things it promises once."""

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest
from command_line import aliquot_process

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer, alive
from aliquot.testing.waiting import wait_until

ECHO = "def main(args): return args"


def call(client, name, payload=None, **params):
    return client.post(f"actions/{name}", params={"blocking": "true", **params}, json=payload or {})


def told(answer):
    return {pair["key"]: pair["value"] for pair in answer.json()["annotations"]}


def gpu(share, memory):
    return {"annotations": [{"key": "gpu-share", "value": share}, {"key": "gpu-memory", "value": memory}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    data = tmp_path_factory.mktemp("platform") / "data"
    with LiveServer(data, "--devices", "host:1", "--device-memory", "8GiB") as running:
        yield running
    assert replay_file(data).differences == []


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def test_functions_that_do_not_fit_together_take_turns_in_device_memory(server, client):
    """No function is called three times: then the platform would predict its next call and load its memory early."""

    def starts(*names):
        return [told(call(client, name))["start"] for name in names]

    for name in ("alone", "left", "right"):
        server.deploy(name, ECHO, **gpu(0.5, "6GiB"))
    assert starts("alone", "alone") == ["cold", "warm"]
    client.delete("actions/alone").raise_for_status()
    assert starts("left", "right", "left", "right") == ["cold", "cold", "swap_in", "swap_in"]
    assert told(call(client, "right"))["device"] == "host-1"


def test_what_no_device_can_ever_hold_is_refused_when_it_is_deployed(client):
    body = {"exec": {"kind": "python:3.11", "code": ECHO}, **gpu(0.5, "9GiB")}
    answer = client.put("actions/giant", json=body)
    assert answer.status_code == 400
    assert "host-1: needs 9663676416 bytes of 8589934592" in answer.json()["error"]


WHO = """
import os, time
WHO = os.urandom(8).hex()
def main(args):
    time.sleep(0.2)
    return {"who": WHO}
"""


def test_calls_beyond_the_instances_of_a_function_wait_for_their_own(server, client):
    server.deploy("one", WHO, limits={"instances": 1})
    server.deploy("any", WHO)
    with ThreadPoolExecutor(4) as pool:
        one, many = (set(pool.map(lambda _, name=name: call(client, name, result="true").json()["who"], range(4)))
                     for name in ("one", "any"))  # fmt: skip
    assert len(one) == 1
    assert len(many) > 1


def test_a_new_revision_is_what_the_next_call_runs(server, client):
    for number in range(3):
        server.deploy("changing", f"def main(args): return {{'n': {number}}}")
        assert call(client, "changing", result="true").json() == {"n": number}


def test_the_operator_sees_flows_devices_and_sandboxes(server, client):
    server.deploy("seen", ECHO)
    call(client, "seen")
    operator = {"authorization": f"Bearer {server.operator}"}
    status = httpx.get(f"{server.url}/operator/v1/status", headers=operator).json()
    (flow,) = [flow for flow in status["flows"] if flow["function"] == "seen"]
    assert flow["virtual_time"] > 0
    (sandbox,) = [sandbox for sandbox in status["sandboxes"] if sandbox["function"] == "seen"]
    assert alive(sandbox["pid"])
    assert sandbox["rss_bytes"] > 2**20
    assert {device["name"] for device in status["devices"]} == {"cpu", "host-1"}


def test_a_tenants_weight_is_the_operators(server):
    server.create_namespace("heavy")
    operator = {"authorization": f"Bearer {server.operator}"}
    where = f"{server.url}/operator/v1/namespaces/heavy"
    assert httpx.patch(where, headers=operator, json={"weight": 2}).json()["weight"] == 2
    assert httpx.patch(where, headers={"authorization": "Bearer guess"}, json={"weight": 9}).status_code == 401
    with server.client() as tenant:
        tenants = tenant.patch(where, json={"weight": 9})
    assert tenants.status_code == 401


def test_keys_are_stored_hashed(server):
    secret = server.key.partition(":")[2].encode()
    for file in server.data.rglob("*"):
        if file.is_file() and file.name != "local.json":
            assert secret not in file.read_bytes(), file
    assert (server.data / "local.json").stat().st_mode & 0o077 == 0
    assert server.data.stat().st_mode & 0o077 == 0


def test_replay_by_command_while_the_server_runs(server, client):
    server.deploy("played", ECHO)
    for _ in range(20):
        call(client, "played")
    command = [sys.executable, "-m", "aliquot", "replay", str(server.data), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    replayed = msgspec.json.decode(done.stdout)
    assert replayed["differences"] == []
    assert replayed["commands"] > 20


def test_replay_of_what_is_no_journal_says_so(tmp_path):
    (tmp_path / "aliquot.db").write_bytes(b"something else entirely" * 1000)
    command = [sys.executable, "-m", "aliquot", "replay", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "JOURNAL:" in done.stderr


def test_the_time_in_which_a_request_is_read_is_in_its_record(tmp_path):
    with LiveServer(tmp_path / "data") as server:
        server.deploy("echo", ECHO)
        address = server.url.removeprefix("http://").split(":")
        body = b'{"a": "%b"}' % (b"x" * 200)
        auth = base64.b64encode(server.key.encode()).decode()
        head = (
            "POST /api/v1/namespaces/_/actions/echo?blocking=true HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
            f"Authorization: Basic {auth}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((address[0], int(address[1])), timeout=60) as connection:
            connection.sendall(head.encode() + body[:10])
            time.sleep(0.1)  # the client is slow
            connection.sendall(body[10:])
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        record = json.loads(answer.partition(b"\r\n\r\n")[2])
        notes = {note["key"]: note["value"] for note in record["annotations"]}
        assert notes["gatewayTime"] >= 90


def test_https(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    with LiveServer(tmp_path / "data", "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(certificate))
        with server.client(verify=trust) as client:
            body = {"exec": {"kind": "python:3.11", "code": ECHO}}
            client.put("actions/echo", json=body).raise_for_status()
            big = "x" * 300_000
            assert call(client, "echo", {"big": big}, result="true").json() == {"big": big}
        trusting = {"ALIQUOT_DATA": str(server.data), "SSL_CERT_FILE": str(certificate)}
        assert "echo" in aliquot_process("list", cwd=tmp_path, **trusting)
        doubting = aliquot_process("list", cwd=tmp_path, code=3, **{**trusting, "SSL_CERT_FILE": os.devnull})
        assert "is not trusted" in doubting
        assert "set SSL_CERT_FILE to the file of the certificate" in doubting
        console = json.loads((server.data / "local.json").read_text())["console"]
        page = {"origin": console.removesuffix("/console/"), "sec-fetch-site": "same-origin"}
        session = httpx.post(f"{console}session", json={"key": server.key}, headers=page, verify=trust)
        assert "; Secure" in session.headers["set-cookie"]
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url.replace("https", "http"))


def test_old_records_and_journal_segments_go(tmp_path):
    """The server prunes by `--keep-days` and `--keep-size` now and then. The newest journal segment stays."""
    with LiveServer(tmp_path / "data") as server:
        server.deploy("echo", ECHO)
        with server.client() as client:
            call(client, "echo")
    with LiveServer(tmp_path / "data", "--keep-days", "0") as server, server.client() as client:
        wait_until(lambda: client.get("activations").json(), lambda left: not left, what="old records to be pruned")
    replayed = replay_file(tmp_path / "data")
    assert replayed.segments == 1
    assert replayed.differences == []
