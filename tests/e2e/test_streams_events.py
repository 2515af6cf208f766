"""Runs that are followed as they go: server-sent events from a real server, for who calls and for who comes later."""

import threading

import httpx
import pytest
from event_reader import STREAM, events_of, text

from aliquot.testing.server import LiveServer

BLOCKING = {"blocking": "true"}
TALKER = """
import sys, time
print("imported")
def main(args):
    for n in range(args.get("lines", 3)):
        print("line", n)
        time.sleep(args.get("pause", 0.1))
    sys.stderr.write("no end")
    if "fail" in args:
        return {"error": args["fail"]}
    return {"said": args.get("lines", 3)}
"""


@pytest.fixture(scope="module")
def server(shared_server):
    shared_server.deploy("talk", TALKER)
    shared_server.deploy("array", "def main(args): return [1, 2]")
    return shared_server


@pytest.fixture
def client(server):
    with server.client() as found:
        yield found


def follow(client, body=None, **query):
    return client.stream("POST", "actions/talk", params={**BLOCKING, **query}, json=body or {}, headers=STREAM)


def attach(client, activation_id, **more):
    return client.stream("GET", f"activations/{activation_id}", headers={**STREAM, **more})


def test_a_call_is_followed_from_its_acceptance_to_its_record(client):
    with follow(client) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        events = list(events_of(response))
    activation_id = response.headers["x-openwhisk-activation-id"]
    accepted, *logs, result = events
    assert accepted == ("accepted", "0", {"activationId": activation_id})
    assert [(event.kind, event.id) for event in logs] == [("log", str(number + 1)) for number in range(len(logs))]
    lines = [text(event) for event in logs]
    assert [line for line in lines if "imported" not in line] == [
        "stdout: line 0", "stdout: line 1", "stdout: line 2", "stderr: no end",
    ]  # fmt: skip
    assert (result.kind, result.id) == ("result", "end")
    record = client.get(f"activations/{activation_id}").json()
    assert result.data == record
    assert record["logs"] == [event.data for event in logs]
    assert record["response"]["result"] == {"said": 3}


def test_lines_come_while_the_run_goes_on(client):
    with follow(client, {"lines": 3, "pause": 0.5}) as response:
        begun = []
        for event in events_of(response):
            if event.kind == "log" and "line" in event.data:
                listed = client.get(f"activations/{response.headers['x-openwhisk-activation-id']}").status_code
                begun.append(listed)
    assert begun[:2] == [404, 404]  # it had not ended when they were read


def test_the_result_alone_if_that_is_asked_for(client):
    with follow(client, result="true") as response:
        assert list(events_of(response))[-1].data == {"said": 3}
    with client.stream("POST", "actions/array", params=BLOCKING, headers=STREAM) as response:
        assert list(events_of(response))[-1].data["response"]["result"] == [1, 2]


def test_a_failure_is_a_result_too(client):
    with follow(client, {"fail": "why"}) as response:
        assert response.status_code == 200
        result = list(events_of(response))[-1]
    assert result.data["response"]["status"] == "application error"
    assert result.data["response"]["result"] == {"error": "why"}


def test_who_does_not_wait_gets_no_stream(client):
    answer = client.post("actions/talk", json={}, headers=STREAM)
    assert (answer.status_code, list(answer.json())) == (202, ["activationId"])


def test_refusals_come_before_the_stream(client):
    for path, more, status in (
        ("actions/nothing", {}, 404),
        ("actions/talk", {"content": "{", "headers": {**STREAM, "Content-Type": "application/json"}}, 400),
        ("actions/talk", {"auth": ("a", "b")}, 401),
        ("actions/talk?timeout=0", {}, 400),
    ):
        answer = (
            client.post(path, params=BLOCKING, **{"headers": STREAM, **more})
            if "?" not in path
            else client.post(f"{path}&blocking=true", headers=STREAM)
        )
        assert (path, answer.status_code) == (path, status)
        assert set(answer.json()) == {"error", "code"}


def begin(client, **body):
    return client.post("actions/talk", json=body).json()["activationId"]


def wait_for_line(client, activation_id, line):
    with attach(client, activation_id) as response:
        for event in events_of(response):
            if event.kind == "log" and line in event.data:
                return


def test_who_comes_later_hears_what_was_said_and_what_is_said(client):
    activation_id = begin(client, lines=6, pause=0.2)
    wait_for_line(client, activation_id, "line 2")
    with attach(client, activation_id) as response:
        *logs, result = list(events_of(response))
    assert [event.data for event in logs] == result.data["logs"]
    assert [text(event) for event in logs][-2:] == ["stdout: line 5", "stderr: no end"]


def test_who_comes_again_hears_the_rest(client):
    activation_id = begin(client, lines=5, pause=0.2)
    with attach(client, activation_id) as response:
        first = next(event for event in events_of(response) if "line 1" in event.data)
    with attach(client, activation_id, **{"Last-Event-ID": first.id}) as response:
        *logs, result = list(events_of(response))
    assert int(logs[0].id) == int(first.id) + 1
    assert [event.data for event in logs] == result.data["logs"][int(first.id) :]


def test_of_one_that_has_ended_there_is_the_result(client):
    activation_id = client.post("actions/talk", params=BLOCKING, json={"lines": 1}).json()["activationId"]
    with attach(client, activation_id) as response:
        (result,) = events_of(response)
    assert result.data == client.get(f"activations/{activation_id}").json()
    with client.stream("GET", f"activations/{activation_id}?result=true", headers=STREAM) as response:
        assert [event.data for event in events_of(response)] == [{"said": 1}]
    again = client.get(f"activations/{activation_id}", headers={**STREAM, "Last-Event-ID": "end"})
    assert again.status_code == 204  # browsers stop at that


def test_what_is_not_there_or_is_anothers_is_not_followed(server, client):
    assert client.get("activations/" + "0" * 32, headers=STREAM).status_code == 404
    assert client.get("activations/x", headers=STREAM).status_code == 400
    activation_id = begin(client, lines=3, pause=0.3)
    with server.client(server.create_namespace("other")) as other:
        assert other.get(f"activations/{activation_id}", headers=STREAM).status_code == 404


def test_a_follower_that_goes_away_leaves_the_run_alone(server, client):
    with server.client() as leaving, follow(leaving, {"lines": 4, "pause": 0.2}) as response:
        activation_id = response.headers["x-openwhisk-activation-id"]
        next(event for event in events_of(response) if event.kind == "log")
        response.close()
    with attach(client, activation_id) as response:
        assert list(events_of(response))[-1].data["response"]["result"] == {"said": 4}


def test_several_follow_one_run(server, client):
    activation_id = begin(client, lines=4, pause=0.2)
    heard = []

    def listen():
        with server.client() as own, attach(own, activation_id) as response:
            heard.append([event.data for event in events_of(response)])

    listeners = [threading.Thread(target=listen) for _ in range(5)]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    assert len(heard) == 5
    assert all(one == heard[0] for one in heard)


def test_a_run_that_is_cancelled_ends_its_stream(client):
    with follow(client, {"lines": 1000, "pause": 0.1}) as response:
        activation_id = response.headers["x-openwhisk-activation-id"]
        for event in events_of(response):
            if event.kind == "log" and "line 1" in event.data:
                assert client.delete(f"activations/{activation_id}").status_code == 202
    assert (event.kind, event.data["response"]["status"]) == ("result", "whisk internal error")


def test_a_server_that_stops_says_so_to_who_follows_what_has_not_begun(tmp_path):
    with LiveServer(tmp_path / "data", "--cpu-slots", "1", "--grace", "1") as own, own.client() as client:
        own.deploy("talk", TALKER)
        begin(client, lines=1000)
        with follow(client) as response:
            stop = threading.Timer(0.3, own.process.terminate)
            stop.start()
            last = list(events_of(response))[-1]
        assert last.kind == "error"
        assert last.data["error"].startswith("the server is stopping")
    with own, own.client() as client:  # it was accepted: the next server has it
        activation_id = response.headers["x-openwhisk-activation-id"]
        with attach(client, activation_id) as response:
            assert list(events_of(response))[-1].data["response"]["result"] == {"said": 3}


def test_the_page_tells_of_streams(server):
    page = httpx.get(f"{server.url}/openapi.json").json()
    for path, method in (("actions/{name}", "post"), ("activations/{id}", "get")):
        operation = page["paths"][f"/api/v1/namespaces/{{namespace}}/{path}"][method]
        assert "text/event-stream" in operation["responses"]["200"]["content"]
