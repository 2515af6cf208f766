"""Cancelling running calls on a real server. A record is there as soon as the answer is."""

import time

import httpx
import pytest
from awaiting import wait_for_record, wait_until_idle
from event_reader import STREAM, events_of

from aliquot.testing.server import LiveServer, alive
from aliquot.testing.waiting import wait_until

BLOCKING = {"blocking": "true"}
SLEEP = """
import time
def main(args):
    print("begun")
    time.sleep(args["s"])
    return {"slept": args["s"]}
"""
# The caller of a blocking call learns its id with the answer: only the function itself can know it earlier.
ENDS_ITSELF = """
import base64, os, time, urllib.request
def main(args):
    url = f"{os.environ['__OW_API_HOST']}/api/v1/namespaces/_/activations/{os.environ['__OW_ACTIVATION_ID']}"
    authorization = "Basic " + base64.b64encode(args["key"].encode()).decode()
    request = urllib.request.Request(url, method="DELETE", headers={"Authorization": authorization})
    assert urllib.request.urlopen(request).status == 202
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("cancel") / "data", "--cpu-slots", "2") as started:
        started.deploy("sleep", SLEEP)
        started.deploy("ends_itself", ENDS_ITSELF)
        started.deploy("pair", "", kind="sequence", exec={"kind": "sequence", "components": ["/_/sleep", "/_/sleep"]})
        yield started


@pytest.fixture
def client(server):
    with server.client() as found:
        yield found
    # What one test leaves behind would take the slots of the next.
    wait_until_idle(server)


def status(server):
    headers = {"Authorization": f"Bearer {server.operator}"}
    return httpx.get(f"{server.url}/operator/v1/status", headers=headers).json()


def accept(client, seconds, name="sleep"):
    return client.post(f"actions/{name}", json={"s": seconds}).json()["activationId"]


def cancel(client, activation_id):
    answer = client.delete(f"activations/{activation_id}")
    assert (answer.status_code, answer.json()) == (202, {"activationId": activation_id})


def begun(client, activation_id):
    """Returns once it runs."""
    with client.stream("GET", f"activations/{activation_id}", headers=STREAM) as response:
        next(event for event in events_of(response) if event.kind == "log")


def ended(client, activation_id):
    """The record, once there is one."""
    return wait_for_record(client, activation_id)


def is_cancelled(record):
    response = dict(record["response"])
    del response["size"]
    return response == {"status": "whisk internal error", "success": False, "result": {"error": "cancelled"}}


def test_a_run_that_is_cancelled_has_a_clear_record_and_its_sandbox_is_killed(server, client):
    activation_id = accept(client, 60)
    begun(client, activation_id)
    (busy,) = [one["pid"] for one in status(server)["sandboxes"] if one["state"] == "busy"]
    cancel(client, activation_id)
    record = ended(client, activation_id)
    assert is_cancelled(record)
    assert record["duration"] < 60_000
    assert [line.split(" ", 1)[1].strip() for line in record["logs"]] == ["stdout: begun"]
    wait_until(lambda: not alive(busy), what="the cancelled run's process to end")


def test_a_caller_that_waits_is_answered_at_once(server, client):
    answer = client.post("actions/ends_itself", params=BLOCKING, json={"key": server.key})
    assert answer.status_code == 500
    assert is_cancelled(answer.json())
    stored = client.get(f"activations/{answer.json()['activationId']}").json()
    assert {**stored, "logs": []} == answer.json()


def test_one_that_waits_for_its_turn_never_runs(client):
    ahead = [accept(client, 60), accept(client, 60)]
    for activation_id in ahead:
        begun(client, activation_id)
    waiting = accept(client, 0)
    with client.stream("GET", f"activations/{waiting}", headers=STREAM) as followed:
        cancel(client, waiting)
        (event,) = events_of(followed)
    assert is_cancelled(event.data)
    assert event.data["logs"] == []
    assert client.get(f"activations/{waiting}").json() == event.data
    for activation_id in ahead:
        cancel(client, activation_id)


def test_one_that_has_ended_stays_as_it_is(client):
    answer = client.post("actions/sleep", params=BLOCKING, json={"s": 0})
    activation_id = answer.json()["activationId"]
    before = client.get(f"activations/{activation_id}").json()
    cancel(client, activation_id)
    cancel(client, activation_id)
    assert client.get(f"activations/{activation_id}").json() == before


def test_anothers_call_is_not_there_and_goes_on(server, client):
    activation_id = accept(client, 1)
    with server.client(server.create_namespace("stranger")) as stranger:
        assert stranger.delete(f"activations/{activation_id}").status_code == 404
        answer = stranger.delete(f"{server.url}/api/v1/namespaces/guest/activations/{activation_id}")
        assert answer.status_code == 403
    assert ended(client, activation_id)["response"]["result"] == {"slept": 1}


def test_what_never_was_is_404_and_what_cannot_be_is_400(client):
    assert client.delete("activations/" + "0" * 32).status_code == 404
    assert client.delete("activations/nonsense").status_code == 400


def test_a_call_that_was_given_up_waiting_for_can_still_be_cancelled(client):
    answer = client.post("actions/sleep", params={**BLOCKING, "timeout": "200"}, json={"s": 60})
    assert answer.status_code == 202
    cancel(client, answer.json()["activationId"])
    assert is_cancelled(ended(client, answer.json()["activationId"]))


def test_a_sequence_is_cancelled_with_what_runs_of_it(client):
    activation_id = accept(client, 60, "pair")
    time.sleep(0.3)  # its first component has begun, or will; either way it ends
    cancel(client, activation_id)
    assert ended(client, activation_id)["response"]["success"] is False


def test_the_record_is_there_with_the_answer_every_time(client):
    for _ in range(20):
        answer = client.post("actions/sleep", params=BLOCKING, json={"s": 0})
        stored = client.get(f"activations/{answer.json()['activationId']}")
        assert stored.status_code == 200
        assert {**stored.json(), "logs": []} == answer.json()
    for _ in range(5):
        with client.stream("POST", "actions/sleep", params=BLOCKING, json={"s": 0}, headers=STREAM) as response:
            result = list(events_of(response))[-1]
        assert client.get(f"activations/{result.data['activationId']}").json() == result.data
