"""A server with few descriptors: whoever opens what, the neighbour and the operator reach it."""

import errno
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from sandboxes import strongest
from tenants import SmallServer, Tenants

from aliquot.testing.server import open_files
from aliquot.testing.waiting import wait_until

MAX_FILES = SmallServer.MAX_FILES
SLEEPS = "import time\ndef main(args):\n    time.sleep(args.get('s', 0))\n    return {}\n"
OPENS = """
import time
def main(args):
    held, error = [], 0
    try:
        for _ in range(args["count"]):
            held.append(open("/datasets/shared/one.txt"))
    except OSError as failure:
        error = failure.errno
    time.sleep(args["s"])
    return {"held": len(held), "error_number": error}
"""
PRINTS = """
import time
def main(args):
    time.sleep(1)
    for n in range(9000):
        print('x' * 1000)
    return {}
"""


@pytest.fixture(scope="module")
def tenants(tmp_path_factory):
    options = ("--devices", "host:1", "--limit", "event_streams=40", "--limit", "unread_bytes=8MiB")
    with (
        SmallServer(tmp_path_factory.mktemp("small") / "data", *options) as server,
        server.client(server.create_namespace("attacker")) as attacker,
        server.client(server.create_namespace("neighbour")) as neighbour,
    ):
        yield Tenants(server, attacker, neighbour)


def connect(tenants):
    url = httpx.URL(tenants.server.url)
    return socket.create_connection((url.host, url.port), timeout=30)


def check_reachable(tenants):
    """Check that new connections of the neighbour and of the operator are served."""
    key = tenants.neighbour.auth
    with httpx.Client(base_url=tenants.neighbour.base_url, auth=key, timeout=30) as fresh:
        fresh.get("actions").raise_for_status()
    tenants.check_neighbour()
    assert tenants.server.operate("GET", "namespaces")
    assert open_files(tenants.server.process.pid) < MAX_FILES


def busy_sandboxes(tenants):
    return [one for one in tenants.server.operate("GET", "status")["sandboxes"] if one["state"] == "busy"]


def head(tenants, method, path, **headers):
    auth = httpx.Request("GET", tenants.server.url)
    (signed,) = [next(tenants.attacker.auth.auth_flow(auth))]
    fields = {"Host": "x", "Authorization": signed.headers["authorization"], **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


@pytest.mark.budget("connections without a key")
def test_connections_that_send_nothing_keep_nobody_out(tenants):
    with ExitStack() as stack:
        for _ in range(2 * MAX_FILES):
            stack.enter_context(connect(tenants))
        check_reachable(tenants)
    check_reachable(tenants)


@pytest.mark.budget("connections")
def test_connections_of_one_key_keep_nobody_out(tenants):
    tenants.attacker.deploy("sleeps", SLEEPS, limits={"instances": 1, "timeout": 120_000})
    path = "/api/v1/namespaces/_/actions/sleeps?blocking=true&timeout=60000"
    body = b'{"s":3}'
    with ExitStack() as stack:
        wires = []
        for _ in range(MAX_FILES):
            wire = stack.enter_context(connect(tenants))
            wire.sendall(head(tenants, "POST", path, Content_Length=len(body)) + body)
            wires.append(wire)
        refused = [wire.recv(4096) for wire in wires[-20:]]
        assert all(answer.startswith(b"HTTP/1.1 429") and b"connections: the namespace" in answer for answer in refused)
        check_reachable(tenants)
    tenants.attacker.delete("actions/sleeps").raise_for_status()  # ends what waits
    wait_until(lambda: busy_sandboxes(tenants), lambda busy: not busy, what="the end of the call that runs")


@pytest.mark.budget("event streams")
def test_streams_of_one_key_keep_nobody_out_and_those_that_have_gone_are_forgotten(tenants):
    tenants.attacker.deploy("sleeps", SLEEPS, limits={"timeout": 120_000})
    activation = tenants.attacker.post("actions/sleeps", json={"s": 60}).json()["activationId"]
    path = f"/api/v1/namespaces/_/activations/{activation}"
    wait_until(lambda: follow(tenants, path).startswith(b"HTTP/1.1 200"), what="a stream of the running call")
    with ExitStack() as stack:
        answers = [follow(tenants, path, stack) for _ in range(36)]
        assert sum(answer.startswith(b"HTTP/1.1 200") for answer in answers) == 20
        assert b"streams of events: the namespace holds 20 streams" in answers[-1]
        check_reachable(tenants)
    wait_until(lambda: follow(tenants, path).startswith(b"HTTP/1.1 200"), what="the streams that have gone")
    tenants.attacker.delete(f"activations/{activation}").raise_for_status()


@pytest.mark.budget("unread responses")
def test_followers_that_do_not_read_are_disconnected_and_others_are_not(tenants):
    tenants.attacker.deploy("prints", PRINTS, limits={"timeout": 120_000})
    activation = tenants.attacker.post("actions/prints", json={}).json()["activationId"]
    path = f"/api/v1/namespaces/_/activations/{activation}"
    before = resident_bytes(tenants)
    with ExitStack() as stack:
        wires = []
        for _ in range(15):
            wire = stack.enter_context(connect(tenants))
            wire.sendall(head(tenants, "GET", path, Accept="text/event-stream"))
            wires.append(wire)
        wait_until(
            lambda: tenants.attacker.get(f"activations/{activation}/result"),
            lambda answer: answer.is_success,
            what="the end of a run that prints 9 MB",
        )
        check_reachable(tenants)
        assert resident_bytes(tenants) - before < 60 * 2**20, "135 MB were printed for the clients"
        ends = [read_all(wire) for wire in wires]
        assert any(b"the events are not read fast enough" in end for end in ends)


def test_a_server_that_had_no_descriptors_left_accepts_connections_again(tenants):
    pid = tenants.server.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files(pid), hard))
    try:
        with ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(connect(tenants))
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{tenants.server.url}/health", timeout=5)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    check_reachable(tenants)


@pytest.mark.budget("open files of datasets")
@pytest.mark.skipif(not strongest().views, reason="this machine cannot show datasets to functions")
def test_files_that_one_tenant_opens_in_datasets_leave_some_to_others(tenants, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    (folder / "one.txt").write_text("hello")
    tenants.server.operate("PUT", "datasets/shared", json={"url": str(folder)})
    for client in (tenants.attacker, tenants.neighbour):
        client.deploy("opens", OPENS, annotations=[{"key": "datasets", "value": ["shared"]}])
    holding = tenants.attacker.post("actions/opens", json={"count": MAX_FILES, "s": 60}).json()["activationId"]
    took = tenants.attacker.result("opens", {"count": MAX_FILES, "s": 0})
    assert took["held"] <= MAX_FILES // 4
    assert took["error_number"] == errno.ENFILE
    assert tenants.neighbour.result("opens", {"count": 40, "s": 0})["held"] == 40
    tenants.check_neighbour()
    tenants.attacker.delete(f"activations/{holding}").raise_for_status()


@pytest.mark.budget("sandboxes")
def test_warm_sandboxes_of_one_tenant_leave_descriptors_for_others(tenants):
    for number in range(14):
        tenants.attacker.deploy(f"warm{number}", SLEEPS)
        assert tenants.attacker.result(f"warm{number}", {}) == {}
    check_reachable(tenants)


def follow(tenants, path, stack=None):
    """Ask for a stream of events, and return the beginning of the answer. Without a stack the client leaves."""
    with ExitStack() as own:
        wire = (stack or own).enter_context(connect(tenants))
        wire.sendall(head(tenants, "GET", path, Accept="text/event-stream"))
        return wire.recv(4096)


def read_all(wire):
    found = b""
    while part := wire.recv(2**20):
        found = (found + part)[-4096:]
        if found.endswith(b"0\r\n\r\n"):
            break
    return found


def resident_bytes(tenants):
    status = Path(f"/proc/{tenants.server.process.pid}/status").read_text()
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
