"""Payloads and results of many mebibytes through a real server: they pass whole, in about one buffer, and alone."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from awaiting import wait_for_record, wait_until_written
from event_reader import STREAM, events_of

from aliquot.core.units import MIB
from aliquot.testing.server import LiveServer

SIZE = 32 * MIB
BODY = b'{"x":"' + b"x" * SIZE + b'"}'
RESULT = {"blocking": "true", "result": "true"}
JSON = {"content-type": "application/json"}
ROOMY = {"limits": {"memory": 1024}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("large") / "data") as started:
        started.deploy("size", "def main(args): return {'keys': sorted(args), 'n': len(args.get('x', ''))}", **ROOMY)
        started.deploy("make", "def main(args): return {'x': 'é' * args['n']}", **ROOMY)
        started.deploy("echo", "def main(args): return args", **ROOMY)
        defaults = [{"key": "a", "value": 1}, {"key": "x", "value": "mine"}]
        code = "def main(args): return {'keys': sorted(args), 'a': args['a'], 'n': len(args['x'])}"
        started.deploy("defaults", code, parameters=defaults, **ROOMY)
        started.deploy("final", code, parameters=defaults, annotations=[{"key": "final", "value": True}], **ROOMY)
        yield started


@pytest.fixture
def client(server):
    with server.client() as found:
        yield found


def invoke(client, name, body, **query):
    return client.post(f"actions/{name}", params=query or RESULT, content=body, headers=JSON)


def peak_of(server, work):
    """Return by how many bytes the server's memory grew at its peak."""
    process = Path(f"/proc/{server.process.pid}")

    def read(name):
        (line,) = [line for line in (process / "status").read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) * 1024

    before = read("VmRSS")
    (process / "clear_refs").write_text("5")
    work()
    return read("VmHWM") - before


def test_a_large_payload_costs_the_server_one_buffer(server, client):
    invoke(client, "size", b"{}").raise_for_status()
    wait_until_written(server)
    answers = []
    peak = peak_of(server, lambda: answers.append(invoke(client, "size", BODY)))
    assert answers[0].json() == {"keys": ["x"], "n": SIZE}
    assert peak < 1.6 * SIZE


@pytest.mark.parametrize("query", [RESULT, {"blocking": "true"}])
def test_a_large_result_costs_the_server_one_buffer(server, client, query):
    wait_until_written(server)
    answers = []
    call = {"n": SIZE // 2}
    peak = peak_of(server, lambda: answers.append(client.post("actions/make", params=query, json=call)))
    body = answers[0].json()
    result = body if query is RESULT else body["response"]["result"]
    assert result == {"x": "é" * (SIZE // 2)}
    if query is not RESULT:
        assert body["response"]["size"] == SIZE + 8
    assert peak < 1.9 * SIZE  # with what SQLite keeps of its file


def test_the_record_of_a_large_result_is_there_at_once_and_later(server, client):
    answer = client.post("actions/make", params={"blocking": "true"}, json={"n": 2 * MIB})
    activation_id = answer.headers["x-openwhisk-activation-id"]
    for _ in range(2):
        record = client.get(f"activations/{activation_id}").json()
        assert record["response"] == answer.json()["response"]
        assert client.get(f"activations/{activation_id}/result").json() == record["response"]
        wait_until_written(server)  # now it comes from the file
    (listed, *_) = client.get("activations", params={"docs": "true", "name": "make"}).json()
    assert listed["activationId"] == activation_id
    assert listed["response"]["result"] is None  # a page of such would be the server's memory
    with client.stream("GET", f"activations/{activation_id}", headers=STREAM) as response:
        (event,) = events_of(response)
    assert event.data == record


def test_a_large_body_in_chunks_is_the_same(client):
    def pieces():
        for begin in range(0, len(BODY), 3 * MIB):
            yield BODY[begin : begin + 3 * MIB]

    assert invoke(client, "size", pieces()).json() == {"keys": ["x"], "n": SIZE}


def test_it_passes_byte_for_byte(client):
    text = json.dumps({"t": "é€😀\\u0000\\\\\\" * 200_000, "n": [1.5, None, True, {"k": []}] * 50_000}).encode()
    assert invoke(client, "echo", text).json() == json.loads(text)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (BODY[:-1], "Input data was truncated"),
        (b"[" + b" " * 2 * MIB + b"]", "Object expected"),
        (BODY.replace(b"x" * 100, b"\xff" * 100, 1), "'utf-8' codec can't decode byte 0xff in position 6"),
        (BODY[:-3] + b"\xc3" + BODY[-2:], "invalid continuation byte"),
        (BODY + b"{}", "JSON is malformed: trailing characters"),
        (b'{"a":' + b"[" * MIB + b"]" * MIB + b"}", "JSON is nested too deeply"),
    ],
)
def test_what_is_not_json_is_refused_however_large(client, body, why):
    answer = invoke(client, "size", body)
    assert answer.status_code == 400
    text = answer.json()["error"]
    assert text.startswith("The request content was malformed:\n")
    assert why in text


def test_parameters_are_put_beneath_a_large_body_too(client):
    other = BODY.replace(b'"x"', b'"y"', 1)
    blanks = b" " * 2 * MIB + b"{" + b"\n" * MIB
    assert invoke(client, "defaults", BODY).json() == {"keys": ["a", "x"], "a": 1, "n": SIZE}
    assert invoke(client, "defaults", other).json() == {"keys": ["a", "x", "y"], "a": 1, "n": 4}
    assert invoke(client, "defaults", blanks + b"}").json() == {"keys": ["a", "x"], "a": 1, "n": 4}
    assert invoke(client, "defaults", blanks + b'"a":2}').json() == {"keys": ["a", "x"], "a": 2, "n": 4}
    assert invoke(client, "final", other).json() == {"keys": ["a", "x", "y"], "a": 1, "n": 4}
    assert invoke(client, "final", BODY).status_code == 400


def test_the_json_checker_may_die(server, client):
    invoke(client, "size", BODY).raise_for_status()
    checkers = [
        pid for pid in server.descendants() if b"json_check_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(checkers) == 1
    for _ in range(2):
        for pid in checkers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert invoke(client, "size", BODY).json()["n"] == SIZE


def test_others_go_on_meanwhile(server, client):
    """They are not held up until the large ones are through."""
    invoke(client, "size", b"{}").raise_for_status()
    done = []

    def large():
        with server.client() as own:
            done.append(invoke(own, "size", BODY).json()["n"])

    workers = [threading.Thread(target=large) for _ in range(3)]
    for worker in workers:
        worker.start()
    small = 0
    while any(worker.is_alive() for worker in workers):
        small += client.get("limits").status_code == 200
    for worker in workers:
        worker.join()
    assert done == [SIZE] * 3
    assert small > 3


def test_an_accepted_call_with_a_large_payload_outlives_a_crash(tmp_path):
    with LiveServer(tmp_path / "data", "--cpu-slots", "1") as own:
        own.deploy("wait", "import time\ndef main(args): time.sleep(60)")
        own.deploy("size", "def main(args): return {'n': len(args['x'])}", **ROOMY)
        with own.client() as client:
            client.post("actions/wait")
            activation_id = invoke(client, "size", BODY, blocking="false").json()["activationId"]
        own.kill()
        own.start()
        with own.client() as client:
            record = wait_for_record(client, activation_id)
        assert record["response"]["result"] == {"n": SIZE}
    with sqlite3.connect(tmp_path / "data" / "aliquot.db") as connection:
        assert connection.execute("SELECT count(*) FROM piece").fetchone() == (0,)


def test_a_reader_that_takes_its_time_is_served_and_costs_one_buffer(server, client):
    wait_until_written(server)
    host, _, port = server.url.partition("://")[2].partition(":")
    body = json.dumps({"n": SIZE // 2}).encode()
    head = client.build_request("POST", "actions/make", params=RESULT, content=body)
    authorization = next(client.auth.auth_flow(head)).headers["authorization"]

    def read_slowly():
        with socket.create_connection((host, int(port))) as slow:
            lines = [f"POST {head.url.raw_path.decode()} HTTP/1.1", "Host: gateway", f"Authorization: {authorization}"]
            lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
            slow.sendall("\r\n".join(lines).encode() + body)
            time.sleep(1)
            received = 0
            while piece := slow.recv(MIB):
                received += len(piece)
            assert received > SIZE

    assert peak_of(server, read_slowly) < 1.9 * SIZE


def test_the_limit_is_the_operators(tmp_path):
    with LiveServer(tmp_path / "data", "--limit", "payload_bytes=2MiB") as own, own.client() as client:
        own.deploy("echo", "def main(args): return args")
        own.deploy("make", "def main(args): return {'x': 'x' * args['n']}")
        assert client.get(own.url).json()["limits"]["max_action_payload"] == 2 * MIB
        assert invoke(client, "echo", b'{"x":"%b"}' % (b"x" * (2 * MIB - 8))).status_code == 200
        refused = invoke(client, "echo", b'{"x":"%b"}' % (b"x" * (2 * MIB - 7)))
        assert refused.status_code == 413
        assert refused.json()["error"] == f"Request larger than allowed: {2 * MIB + 1} > {2 * MIB} bytes."
        answer = invoke(client, "make", b'{"n":%d}' % (2 * MIB))
        assert answer.status_code == 502
        assert f"exceeded the allowed length: {2 * MIB + 8} > {2 * MIB} bytes." in answer.json()["error"]
