"""Datasets on bad days: the agent or the server is killed, or the origin goes away. Every call ends correctly."""

import errno
import os
import signal
import threading
import time
from contextlib import suppress

import httpx
import pytest
from fabric_server import FabricServer, digest, mounts_of, stop_origin

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import alive
from aliquot.testing.waiting import wait_until
from aliquot_bench.origin.link import LinkShape, serve_origin

MB = 1_000_000
FILES = {"slow.bin": 12 * MB, "large/a.bin": 5 * MB, "large/b.bin": 5 * MB, "small.bin": 1000, "later.bin": MB}


@pytest.fixture(scope="module")
def link():
    with serve_origin(FILES, LinkShape(10 * MB, 0.001), force="paced") as link:
        yield link


@pytest.fixture(scope="module")
def server(tmp_path_factory, link):
    server = FabricServer(tmp_path_factory.mktemp("bad") / "data", "--cache-size", "100MB").start()
    server.add("nas", link.url)
    server.deploy_reader("nas")
    yield server
    assert server.stop() == 0
    assert replay_file(server.data).differences == []
    assert mounts_of(server) == []


def sent(link):
    return sum(link.sent_counts().sent.values())


def stands_still(link):
    before = sent(link)
    time.sleep(0.3)
    return sent(link) == before


def moves(link):
    """Return a function that tells whether the origin has sent anything since now."""
    before = sent(link)
    return lambda: sent(link) > before


def test_an_open_outlives_the_agent_that_it_waited_for(server, link):
    records, moving = [], moves(link)
    call = threading.Thread(target=lambda: records.append(server.read("nas/slow.bin")))
    call.start()
    wait_until(moving, what="files to arrive")
    killed = server.kill_agent()
    call.join()
    (record,) = records
    assert record["response"]["result"]["read"] == {"nas/slow.bin": digest("slow.bin", FILES["slow.bin"])}
    assert record["annotations"]["opened"] == {"fetched": 1}
    assert server.agent() != killed
    again = server.read("nas/slow.bin")
    assert again["annotations"]["start"] == "warm"  # nor did its sandbox mind
    assert again["annotations"]["opened"] == {"cached": 1}


@pytest.mark.long  # each agent is started later than the one before
def test_where_agents_die_again_and_again_the_open_fails_and_the_call_ends(server):
    server.as_operator("POST", "/nas/evict").raise_for_status()
    records, over = [], threading.Event()

    def call():
        records.append(server.read("nas/slow.bin"))
        over.set()

    calling = threading.Thread(target=call)
    calling.start()
    killed = set()
    while not over.wait(0.05):
        with suppress(LookupError, ProcessLookupError, FileNotFoundError):
            if (agent := server.agent()) not in killed:
                killed.add(agent)
                time.sleep(0.3)  # it has taken the view over, or not: either must do
                os.kill(agent, signal.SIGKILL)
    calling.join()
    (record,) = records
    found = record["response"]["result"]["read"]["nas/slow.bin"]
    assert found in {errno.ENOTCONN, errno.ECONNABORTED, digest("slow.bin", FILES["slow.bin"])}
    wait_until(
        lambda: server.show("nas")["trouble"], lambda trouble: trouble is None, what="the dataset to be well again"
    )
    again = server.read("nas/slow.bin")
    assert again["response"]["result"]["read"] == {"nas/slow.bin": digest("slow.bin", FILES["slow.bin"])}


def test_an_agent_that_is_killed_while_it_warms_is_followed_by_another(server, link):
    server.as_operator("POST", "/nas/evict").raise_for_status()
    answers, moving = [], moves(link)

    def warm():
        with server.client() as client:
            answers.append(client.post(f"{server.url}/api/v1/datasets/nas/warm", json={"patterns": ["large/*"]}))

    asking = threading.Thread(target=warm)
    asking.start()
    wait_until(moving, what="files to arrive")
    server.kill_agent()
    asking.join()
    assert answers[0].status_code == 503
    assert answers[0].json()["error"] == "the storage agent ended; try again"
    warm()
    assert answers[1].json() == {"files": 2, "bytes": 10 * MB}
    record = server.read("nas/large/a.bin", "nas/large/b.bin")
    expected = {f"nas/{path}": digest(path, FILES[path]) for path in ("large/a.bin", "large/b.bin")}
    assert record["response"]["result"]["read"] == expected
    assert record["annotations"]["opened"] == {"cached": 2}


def test_whoever_stops_listening_stops_the_warming(server, link):
    server.as_operator("POST", "/nas/evict").raise_for_status()
    with server.client() as client:
        where = f"{server.url}/api/v1/datasets/nas/warm"
        with client.stream("POST", where, json={}, headers={"accept": "text/event-stream"}) as stream:
            next(line for line in stream.iter_lines() if line.startswith("event: progress"))
    wait_until(lambda: stands_still(link), what="the link to stand still")
    shown = server.show("nas")
    assert shown["cached_bytes"] < shown["bytes"]


def test_a_server_that_is_killed_leaves_no_agent_no_mount_and_no_half_file(server, link):
    server.as_operator("POST", "/nas/evict").raise_for_status()
    assert server.read("nas/small.bin")["response"]["success"]

    def call():
        with suppress(httpx.TransportError):
            server.read("nas/slow.bin")

    moving = moves(link)
    calling = threading.Thread(target=call)
    calling.start()
    wait_until(moving, what="files to arrive")
    processes = server.descendants()
    assert server.agent() in processes
    server.kill()
    calling.join()
    wait_until(lambda: not any(map(alive, processes)), what="the server's processes to end")
    assert mounts_of(server) == []
    server.start()
    assert [one["name"] for one in server.as_operator("GET", "").json()] == ["nas"]
    record = server.read("nas/small.bin")
    assert record["annotations"]["opened"] == {"cached": 1}
    cached = [file for file in (server.data / "fabric" / "cache").rglob("*") if file.is_file()]
    assert not [file for file in cached if "arriving" in file.parts]
    record = server.read("nas/slow.bin")
    assert record["response"]["result"]["read"] == {"nas/slow.bin": digest("slow.bin", FILES["slow.bin"])}


def test_an_agent_that_stands_still_holds_up_no_result_for_long(server):
    assert server.read("nas/small.bin")["response"]["success"]
    agent = server.agent()
    os.kill(agent, signal.SIGSTOP)
    try:
        server.deploy("plain", "def main(args): return {}")
        assert server.read(name="plain")["response"]["success"]
        record = server.read()  # opens nothing, so that nothing waits but its record
    finally:
        os.kill(agent, signal.SIGCONT)
    assert record["response"]["success"]
    assert record["annotations"]["dataError"] == "the storage agent did not say what it read"


def test_an_origin_that_is_down_is_an_error_of_the_open_and_the_record_says_why(server, link):
    """The last: nobody starts it again."""
    stop_origin(link)
    record = server.read("nas/later.bin", "nas/small.bin")
    assert record["response"]["success"]
    found = record["response"]["result"]["read"]
    assert found["nas/small.bin"] == digest("small.bin", 1000)  # it is here, and the origin cannot say it has changed
    assert found["nas/later.bin"] == errno.EIO
    assert record["annotations"]["dataError"].startswith("nas/later.bin: ")
    assert "127.0.0.1" not in record["annotations"]["dataError"]  # where it comes from is the operator's business
    with server.client() as client:
        seen = f"{server.url}/api/v1/datasets/away"
        server.as_operator("PUT", "/away", params={"check": "false"}, json={"url": link.url}).raise_for_status()
        trouble = client.get(seen).json()["trouble"]
        assert trouble.startswith("away: ")
        refused = client.post(f"{seen}/warm", json={})
        assert refused.status_code == 424
        told = client.post(f"{seen}/warm", json={}, headers={"accept": "text/event-stream"}).text
        for text in (trouble, refused.json()["error"], told):
            assert "away: " in text
            assert "127.0.0.1" not in text
    assert server.show("away")["trouble"].startswith("http://127.0.0.1")
    with server.client() as client:
        (line,) = client.get(f"activations/{record['activationId']}/logs").json()["logs"]
    assert line.partition(" stderr: ")[2] == record["annotations"]["dataError"]
    assert server.show("nas")["name"] == "nas"
    refused = server.as_operator("PUT", "/other", json={"url": link.url})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("url: http://127.0.0.1")
