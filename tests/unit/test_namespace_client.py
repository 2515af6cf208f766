"""The client of a namespace, before a transport that answers as the gateway does."""

import json

import httpx
import pytest

from aliquot.testing import client as module
from aliquot.testing.client import CallError, NamespaceClient, from_pairs, to_pairs

RECORD = {"activationId": "a1", "response": {"success": True, "result": {"x": 1}}, "annotations": []}
FAILED = {"activationId": "a2", "response": {"success": False, "result": {"error": "no"}}}


def make_client(*answers):
    """Return a client and the list of the requests that it sends. `answers` are pairs of status and JSON."""
    left, sent = list(answers), []

    def answer(request):
        sent.append(request)
        status, body = left.pop(0)
        return httpx.Response(status, json=body)

    return NamespaceClient("http://gateway", "user:secret", transport=httpx.MockTransport(answer)), sent


def test_paths_are_relative_to_the_namespace_and_requests_carry_its_key():
    client, sent = make_client((200, RECORD))
    assert client.result("echo", {"x": 1}) == {"x": 1}
    (request,) = sent
    assert request.url == "http://gateway/api/v1/namespaces/_/actions/echo?blocking=true"
    assert request.headers["authorization"] == httpx.BasicAuth("user", "secret")._auth_header
    assert json.loads(request.content) == {"x": 1}


def test_a_failed_function_has_a_record_and_its_result_is_an_error():
    client, _ = make_client((502, FAILED), (502, FAILED))
    assert client.call("echo", {}) == FAILED
    with pytest.raises(CallError, match=r"echo failed: .*no"):
        client.result("echo", {})


def test_a_refused_call_and_a_refused_deployment_are_errors_with_the_answer():
    client, _ = make_client((404, {"error": "does not exist"}), (400, {"error": "code is missing"}))
    with pytest.raises(CallError, match=r"echo answered 404: .*does not exist"):
        client.call("echo", {})
    with pytest.raises(CallError, match=r"PUT /api/v1/namespaces/_/actions/echo answered 400: .*code is missing"):
        client.deploy("echo", "")


def test_a_call_that_outlasts_the_blocking_time_is_looked_up_until_it_has_ended(monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0)
    client, sent = make_client((202, {"activationId": "a1"}), (404, {"error": "not yet"}), (200, RECORD))
    assert client.call("echo", {}) == RECORD
    assert [request.url.path for request in sent[1:]] == ["/api/v1/namespaces/_/activations/a1"] * 2


def test_a_session_is_ended_even_if_a_call_in_it_fails():
    client, sent = make_client((200, {"sessionId": "s1"}), (502, FAILED), (200, {}))
    with pytest.raises(CallError), client.session("lab", user="ann") as session:
        module.result_of("echo", client.call("echo", {}, session=session))
    assert [(request.method, request.url.path) for request in sent] == [
        ("POST", "/api/v1/sessions"),
        ("POST", "/api/v1/namespaces/_/actions/echo"),
        ("DELETE", "/api/v1/sessions/s1"),
    ]
    assert json.loads(sent[0].content) == {"name": "lab", "user": "ann"}
    assert sent[1].url.params["session"] == "s1"


def test_pairs_and_dictionaries_are_converted_into_each_other():
    values = {"gpu-share": 0.5, "datasets": ["lab"]}
    assert from_pairs(to_pairs(values)) == values
