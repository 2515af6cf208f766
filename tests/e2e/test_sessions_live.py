"""Sessions on a real server: calls of one land in its own sandbox, it ends idle, and a crash does not end it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from awaiting import wait_for_record

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

COUNTER = """
import os, time
me, count = os.urandom(8).hex(), 0  # a sandbox does not know its process's number
def main(args):
    global count
    count += 1
    time.sleep(args.get("sleep", 0))
    return {"sandbox": me, "count": count}
"""
ALL = "/api/v1/sessions"
IDLE_S = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("sessions") / "data", "--session-idle", f"{IDLE_S}s") as server:
        server.deploy("counter", COUNTER)
        yield server
    replayed = replay_file(server.data)
    assert replayed.differences == []


def begin(server, client, **body):
    answer = client.post(f"{server.url}{ALL}", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["sessionId"]


def call(client, session=None, **args):
    params = {"blocking": "true", "result": "true"} | ({"session": session} if session else {})
    answer = client.post("actions/counter", params=params, json=args)
    assert answer.status_code == 200, answer.text
    return answer.json()


def at_once(client, sessions):
    """A call of each, long enough to overlap: each gets a sandbox of its own."""
    with ThreadPoolExecutor(len(sessions)) as pool:
        return list(pool.map(lambda session: call(client, session, sleep=0.5), sessions))


def read(server, client, session):
    return client.get(f"{server.url}{ALL}/{session}")


def test_calls_of_a_session_land_in_its_sandbox_and_not_in_anothers(server):
    with server.client() as client:
        ann, bob = begin(server, client), begin(server, client)
        of_ann, of_bob = at_once(client, [ann, bob])
        assert of_ann["sandbox"] != of_bob["sandbox"]
        for turn in range(1, 4):
            assert call(client, bob) == {"sandbox": of_bob["sandbox"], "count": of_bob["count"] + 2 * turn - 1}
            assert call(client, bob) == {"sandbox": of_bob["sandbox"], "count": of_bob["count"] + 2 * turn}
            assert call(client, ann) == {"sandbox": of_ann["sandbox"], "count": of_ann["count"] + turn}
        listed = client.get("activations", params={"session": ann, "docs": "true"}).json()
        assert {record["response"]["result"]["sandbox"] for record in listed} == {of_ann["sandbox"]}
        assert len(listed) == read(server, client, ann).json()["invocations"] == 4


def test_a_session_ends_when_idle_and_lives_while_it_is_used(server):
    with server.client() as client:
        used, idle = begin(server, client), begin(server, client)
        wait_until(
            lambda: call(client, used) and read(server, client, idle),
            lambda answer: answer.status_code != 200,
            what="the idle session's end",
            pause_s=0.1,
        )
        assert read(server, client, used).status_code == 200
        refused = client.post("actions/counter", params={"blocking": "true", "session": idle})
        assert refused.status_code == 404
        assert refused.json()["error"] == f"There is no session '{idle}', or it has ended."
        call(client, used, sleep=IDLE_S * 1.2)  # what runs is use
        assert read(server, client, used).status_code == 200
        assert client.delete(f"{server.url}{ALL}/{used}").status_code == 200
        assert read(server, client, used).status_code == 404


def test_what_a_sequence_runs_belongs_to_its_session(server):
    with server.client() as client:
        session = begin(server, client)
        components = ["/_/counter", "/_/counter"]
        client.put("actions/twice", json={"exec": {"kind": "sequence", "components": components}}).raise_for_status()
        answer = client.post("actions/twice", params={"blocking": "true", "session": session})
        assert answer.json()["response"]["success"]
        listed = client.get("activations", params={"session": session}).json()
        assert sorted(record["name"] for record in listed) == ["counter", "counter", "twice"]


def test_the_header_names_a_session_on_a_real_connection(server):
    with server.client() as client:
        session = begin(server, client)
        for headers, status in (({"x-aliquot-session": session}, 200), ({"x-aliquot-session": "0" * 32}, 404)):
            assert client.post("actions/counter?blocking=true", headers=headers).status_code == status
        (record,) = client.get("activations", params={"session": session}).json()
        assert {"key": "session", "value": session} in record["annotations"]


def test_another_namespace_can_neither_see_nor_use_nor_end_a_session(server):
    with server.client() as client, server.client(server.create_namespace("stranger")) as stranger:
        session = begin(server, client, metadata={"secret": 1})
        body = {"exec": {"kind": "python:3.11", "code": COUNTER}}
        stranger.put("actions/counter", json=body).raise_for_status()
        path = f"{server.url}{ALL}/{session}"
        for answer in (
            stranger.get(path),
            stranger.patch(path, json={"name": "mine"}),
            stranger.delete(path),
            stranger.post("actions/counter", params={"blocking": "true", "session": session}),
            stranger.post("actions/counter", headers={"x-aliquot-session": session}),
        ):
            assert answer.status_code == 404
            assert answer.json()["error"] == f"There is no session '{session}', or it has ended."
        assert stranger.get(f"{server.url}{ALL}").json() == []
        assert stranger.get("activations", params={"session": session}).json() == []
        assert read(server, client, session).json()["name"] == ""


def test_a_crash_ends_no_session_and_accepted_calls_keep_theirs(tmp_path):
    server = LiveServer(tmp_path / "data", "--cpu-slots", "1").start()
    server.deploy("counter", COUNTER)
    with server.client() as client:
        session = begin(server, client, name="survivor", metadata={"a": [1]})
        ended = begin(server, client)
        client.delete(f"{server.url}{ALL}/{ended}").raise_for_status()
        calls = [
            client.post("actions/counter", params={"session": session}, json={"sleep": 0.2}).json() for _ in range(3)
        ]
    server.kill()
    with server, server.client() as client:
        found = read(server, client, session).json()
        assert (found["name"], found["metadata"]) == ("survivor", {"a": [1]})
        assert read(server, client, ended).status_code == 404
        assert call(client, session)["count"] >= 1
        for accepted in calls:
            record = wait_for_record(client, accepted["activationId"])
            assert {"key": "session", "value": session} in record["annotations"]
        assert len(client.get("activations", params={"session": session}).json()) == 4
    assert replay_file(tmp_path / "data").differences == []
