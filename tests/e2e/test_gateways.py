"""A server with two gateway processes: they may be killed, they stop with the server, and a key ends in all of them.

Keys, limits, records and the journal are also checked in `test_short_ways.py`, hostile HTTP in
`test_hostile_transport.py`, and the transport's details in `tests/unit/gateway`.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from awaiting import wait_for_record, wait_until_busy
from load_clients import API, EVENTS, ID, connection_to

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer, alive
from aliquot.testing.waiting import wait_until, wait_until_async

TWO = ("--gateways", "2")
ECHO = f"{API}/actions/echo?blocking=true&result=true"
SLEEP = "import time\ndef main(args):\n    print('begun')\n    time.sleep(args['s'])\n    return args"
WEB = [{"key": "web-export", "value": True}]
MANY, MAX_ROUNDS = 12, 20
# Suites that ask all that a client can ask. Each starts servers, which the variable gives two gateway processes.
SUITES = [
    "apis_live", "cli_live", "compositions", "crash", "firing", "hostile_http", "limits", "load",
    "namespace_isolation", "platform", "sdk_live", "sessions_live", "streams_cancel", "streams_events",
    "streams_large", "web_action_access", "web_actions", "workflows_live", "wsk_requests",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("gateways") / "data", *TWO) as server:
        server.deploy("echo", "def main(args): return args", annotations=WEB)
        server.deploy("sleep", SLEEP)
        yield server
    assert replay_file(server.data).differences == []


def gateways(server):
    """Return the gateway processes that run."""
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if any("gateway.processes" in word for word in _command(child))]


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def clients_of(process, server):
    """Return the ports of the clients that a gateway process has."""
    port = int(server.url.rpartition(":")[2])
    return {each.raddr.port for each in process.net_connections() if each.raddr and each.laddr.port == port}


def connections(server, count=MANY):
    return [connection_to(server, kept=True) for _ in range(count)]


async def connected_to_both(server):
    """Return open connections, of which each gateway process has some. On a busy machine one may take all at first."""
    opened = []
    for _ in range(MAX_ROUNDS):
        opened += connections(server)
        answers = await asyncio.gather(*(each.ask("POST", ECHO, {"n": 1}) for each in opened))
        assert {answer.status for answer in answers} == {200}
        if len(found := gateways(server)) == 2 and all(clients_of(process, server) for process in found):
            return opened
    raise AssertionError("one gateway process has all connections")


def test_all_that_a_client_asks_for_comes_through(server):
    with server.client() as client:
        assert client.post("actions/echo?blocking=true&result=true", json={"n": 1}).json() == {"n": 1}
        large = {"x": "x" * 5_000_000}
        answer = client.post("actions/echo?blocking=true&result=true", json=large)
        assert (answer.status_code, answer.json() == large) == (200, True)
        accepted = client.post("actions/echo", json={"n": 2})
        assert accepted.status_code == 202
        assert wait_for_record(client, accepted.json()["activationId"])["response"]["result"] == {"n": 2}
        with client.stream("POST", "actions/sleep?blocking=true", json={"s": 0}, headers=EVENTS) as stream:
            events = [line for line in stream.iter_lines() if line.startswith("event")]
        assert events == ["event: accepted", "event: log", "event: result"]
        assert client.post("actions/none?blocking=true", json={}).status_code == 404
        late = client.post("actions/sleep?blocking=true&timeout=100", json={"s": 0.5})
        assert late.status_code == 202
        assert wait_for_record(client, late.json()["activationId"])["response"]["success"]
    assert httpx.get(f"{server.url}/api/v1/web/guest/default/echo.json?n=3").json()["n"] == "3"
    assert httpx.post(f"{server.url}{ECHO}", json={}).status_code == 401


def test_a_revoked_key_is_refused_at_once_by_every_gateway(server):
    async def play():
        opened = await connected_to_both(server)
        await asyncio.to_thread(server.operate, "POST", f"namespaces/{server.namespace}/keys", json={})
        answers = await asyncio.gather(*(each.ask("POST", ECHO, {"n": 1}) for each in opened))
        for each in opened:
            each.close()
        return {answer.status for answer in answers}

    name = server.key
    try:
        assert asyncio.run(play()) == {401}
    finally:
        server.key = server.operate("POST", f"namespaces/{server.namespace}/keys", json={})["key"]
        assert server.key != name


def test_a_killed_gateway_loses_its_connections_and_no_call(server):
    async def play():
        opened = await connected_to_both(server)
        killed, other = gateways(server)
        ports = clients_of(killed, server)
        running = [
            asyncio.create_task(each.ask("POST", f"{API}/actions/sleep?blocking=true", {"s": 1})) for each in opened
        ]
        await asyncio.to_thread(wait_until_there_are, server, len(opened))
        others = connections(server)
        accepted = [(await each.ask("POST", f"{API}/actions/sleep", {"s": 0.1})).headers[ID] for each in others]
        os.kill(killed.pid, signal.SIGKILL)
        ended = await asyncio.gather(*running, return_exceptions=True)
        lost = [end for end in ended if isinstance(end, OSError)]
        assert len(lost) == len(ports)
        assert {end.status for end in ended if not isinstance(end, OSError)} == {200}
        for each in (*opened, *others):
            each.close()
        return accepted, len(ended), killed.pid, other.pid

    before = len(records(server, "sleep"))
    accepted, calls, killed, other = asyncio.run(play())
    with server.client() as client:
        assert all(wait_for_record(client, activation)["response"]["success"] for activation in accepted)
    calls += before + len(accepted)
    wait_until(lambda: len(records(server, "sleep")) == calls, what="the records of all calls")
    found = wait_until(
        lambda: [process.pid for process in gateways(server)],
        lambda pids: len(pids) == 2,
        what="another gateway process",
    )
    assert killed not in found
    assert other in found
    assert asyncio.run(_all_answer(server)) == {200}


async def _all_answer(server):
    opened = await wait_until_async(lambda: connected_to_both(server), what="both gateway processes")
    answers = await asyncio.gather(*(each.ask("POST", ECHO, {"n": 1}) for each in opened))
    for each in opened:
        each.close()
    return {answer.status for answer in answers}


def wait_until_there_are(server, calls):
    wait_until(lambda: server.operate("GET", "status")["calls"] >= calls, what=f"{calls} calls that run or wait")


def records(server, name):
    with server.client() as client:
        return client.get(f"activations?name={name}&limit=200").json()


def test_gateways_stop_with_the_server_and_end_when_it_is_killed(tmp_path):
    server = LiveServer(tmp_path / "data", *TWO).start()
    server.deploy("sleep", SLEEP)
    pids = [process.pid for process in gateways(server)]

    async def play():
        (connection,) = connections(server, 1)
        asked = asyncio.create_task(connection.ask("POST", f"{API}/actions/sleep?blocking=true", {"s": 1}))
        await asyncio.to_thread(wait_until_busy, server, "sleep")
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        return (await asked).status, await stopping

    assert asyncio.run(play()) == (200, 0)
    assert not [pid for pid in pids if alive(pid)]
    server.start()
    pids = [process.pid for process in gateways(server)]
    assert len(pids) == 2
    server.kill()
    wait_until(lambda: not [pid for pid in pids if alive(pid)], what="the end of the gateway processes")


@pytest.mark.long
@pytest.mark.parametrize("name", SUITES)
def test_suites_for_clients_pass_with_two_gateways(name):
    file = str(Path(__file__).with_name(f"test_{name}.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    done = subprocess.run(
        command, env={**os.environ, "ALIQUOT_GATEWAYS": "2"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:]
