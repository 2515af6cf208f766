"""Promises on a real server: calls in time beside refusals, and what is told about both."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.client import check, from_pairs, to_pairs
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

CODE = """
import time
def main(args):
    time.sleep(0.03)
    return {"twice": 2 * args.get("x", 0)}
"""
DEADLINE_MS = 200
CALLERS = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("live") / "data", "--admission", "reservation") as server:
        with server.client() as client:
            client.deploy("slow", CODE)
            for _ in range(9):  # so that its run times are known
                assert answer_of(client, "slow", 5000).status_code == 200
        yield server
    assert not replay_file(server.data).differences


def answer_of(client, name, deadline_ms, **query):
    headers = {"x-aliquot-deadline-ms": str(deadline_ms)}
    return client.post(f"actions/{name}", params={"blocking": "true", **query}, json={"x": 1}, headers=headers)


def notes_of(record):
    return from_pairs(record["annotations"])


def overload(server, name, deadline_ms):
    """Call from many clients at once, and return the records of the calls that ran and the refusals of the others."""

    def call(_):
        with server.client() as client:
            return answer_of(client, name, deadline_ms)

    with ThreadPoolExecutor(CALLERS) as threads:
        answers = list(threads.map(call, range(CALLERS)))
    assert {answer.status_code for answer in answers} <= {200, 429}
    ran = [answer.json() for answer in answers if answer.status_code == 200]
    return ran, [answer.json()["refused"] for answer in answers if answer.status_code == 429]


def test_under_overload_some_calls_are_refused_and_the_promised_ones_end(server):
    ran, refused = overload(server, "slow", DEADLINE_MS)
    assert ran
    assert refused
    assert all(notes_of(record)["objective"]["promised"] for record in ran)
    assert {one["why"] for one in refused} <= {"deadline", "share"}
    assert all(one["offer"]["deadline_ms"] > 0 and one["needs_ms"] > 30 for one in refused if "offer" in one)


def test_a_call_that_is_not_waited_for_is_refused_before_it_is_on_disk(server):
    with server.client() as client:
        count = client.get("activations", params={"count": "true"}).json()
        answer = answer_of(client, "slow", 5, blocking="false")
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["refused"]["why"] == "never"
        assert client.get("activations", params={"count": "true"}).json() == count
        accepted = answer_of(client, "slow", 60_000, blocking="false")
        assert accepted.status_code == 202
        path = f"activations/{accepted.json()['activationId']}"
        record = wait_until(
            lambda: client.get(path), lambda answer: answer.status_code == 200, what="the record"
        ).json()
        assert notes_of(record)["objective"] == {"deadline": 60_000.0, "promised": True, "met": True}


def test_an_offer_is_accepted(server):
    with server.client() as client:
        refused = answer_of(client, "slow", 5).json()["refused"]
        assert answer_of(client, "slow", refused["offer"]["deadline_ms"] + 20).status_code == 200


def test_refusals_and_promises_are_counted(server):
    with server.client() as client:
        assert answer_of(client, "slow", 5).status_code == 429
    counts = server.operate("GET", "status")["promises"]
    assert counts["kept"] > 0
    assert counts["refused"] > 0
    assert 'aliquot_promises_total{action="slow",cause="never",end="refused",namespace="guest"}' in server.metrics()


def test_run_times_are_known_after_a_restart(tmp_path):
    """Otherwise a new server would try the first call, and refuse the others meanwhile."""
    server = LiveServer(tmp_path / "data", "--admission", "reservation")
    with server, server.client() as client:
        client.deploy("slow", CODE)
        for _ in range(9):
            assert answer_of(client, "slow", 5000).status_code == 200
    with server, server.client(server.key) as client:
        answer = answer_of(client, "slow", 5)
        assert (answer.status_code, answer.json()["refused"]["why"]) == (429, "never")
    assert not replay_file(server.data).differences


def test_a_call_with_late_drop_ends_when_its_promise_is_broken(server):
    with server.client(timeout=60) as client:
        client.deploy("waits", "import time\ndef main(args):\n    time.sleep(args.get('s', 0.01))\n    return {}")
        for _ in range(9):  # so that its run times are known
            assert answer_of(client, "waits", 5000).status_code == 200
        headers = {"x-aliquot-deadline-ms": "1000", "x-aliquot-late": "drop"}
        answer = client.post("actions/waits", params={"blocking": "true"}, json={"s": 30}, headers=headers)
        assert answer.status_code == 504, answer.text
        record = answer.json()
        assert record["response"]["status"] == "whisk internal error"
        assert "its deadline has passed" in record["response"]["result"]["error"]
        assert record["duration"] < 20_000
        notes = notes_of(record)
        assert (notes["timeout"], notes["objective"]["blame"]) == (True, "own run")


def test_a_refused_call_of_a_rule_is_a_record(server):
    with server.client() as client:
        client.deploy("strict", CODE, annotations=to_pairs({"latency-slo-ms": 5}))
        for _ in range(9):  # so that its run times are known
            assert answer_of(client, "strict", 5000).status_code == 200
        check(client.put("triggers/tick", json={}, params={"overwrite": "true"}))
        body = {"trigger": "/_/tick", "action": "/_/strict"}
        check(client.put("rules/ticks", json=body, params={"overwrite": "true"}))
        fired = client.post("triggers/tick", json={}).json()["activationId"]
        found = wait_until(
            lambda: [one for one in client.get("activations", params={"name": "strict", "docs": "true"}).json()
                     if one.get("cause") == fired],
            bool,
            what="the record of the rule's call",
        )  # fmt: skip
        assert found[0]["response"]["result"]["refused"]["why"] == "never"
        assert not notes_of(found[0])["objective"]["promised"]
