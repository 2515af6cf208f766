"""The npm client's verbs on triggers and rules."""

import json

import pytest
from npm_client import ClientError, needs_node

from aliquot.testing.waiting import wait_until

pytestmark = needs_node

ECHO = "def main(args): return args"


@pytest.fixture(scope="module", autouse=True)
def actions(client):
    for name in ("first", "second"):
        client.actions.create({"name": name, "action": ECHO, "kind": "python:3.11"})


@pytest.fixture
def trigger(client):
    client.triggers.create({"name": "bell", "trigger": {"parameters": [{"key": "from", "value": "trigger"}]}})
    yield "bell"
    client.triggers.delete("bell")


@pytest.fixture
def rule(client, trigger):
    client.rules.create({"name": "rings", "trigger": trigger, "action": "first"})
    yield "rings"
    client.rules.delete("rings")


def ended(client, id_):
    listed = client.activations.list({"name": "first", "docs": True})
    return next((one for one in listed if one["activationId"] == id_), None)


def test_a_trigger_is_created_read_changed_and_deleted(client):
    given = {"parameters": [{"key": "a", "value": 1}], "publish": True}
    made = client.triggers.create({"name": "chime", "trigger": given, "annotations": {"colour": "red"}})
    assert (made["namespace"], made["name"], made["version"]) == ("guest", "chime", "0.0.1")
    assert (made["limits"], made["publish"]) == ({}, True)
    assert made["parameters"] == [{"key": "a", "value": 1}]
    assert made["annotations"] == [{"key": "colour", "value": "red"}]
    assert made["updated"] > 1_600_000_000_000
    assert client.triggers.get({"triggerName": "chime"})["parameters"] == made["parameters"]
    with pytest.raises(ClientError) as error:
        client.triggers.create({"name": "chime"})
    assert (error.value.status, error.value.text) == (409, "resource already exists")
    changed = client.triggers.update({"name": "chime", "trigger": {"parameters": []}})
    assert (changed["version"], changed["parameters"]) == ("0.0.2", [])
    assert changed["annotations"] == made["annotations"]
    assert client.triggers.delete("chime")["name"] == "chime"
    with pytest.raises(ClientError) as error:
        client.triggers.get("chime")
    assert (error.value.status, error.value.text) == (404, "The requested resource does not exist.")


def test_triggers_are_listed_and_counted(client):
    for name in ("one", "two", "three"):
        client.triggers.create({"name": name})
    assert [item["name"] for item in client.triggers.list()] == ["three", "two", "one"]
    assert [item["name"] for item in client.triggers.list({"skip": 1, "limit": 1})] == ["two"]
    assert client.triggers.list({"count": True}) == {"triggers": 3}
    client.triggers.delete(["one", "two", "three"])
    assert client.triggers.list() == []


def test_firing_without_a_rule_answers_nothing(client, trigger):
    answer = client.triggers.invoke({"name": trigger, "params": {"x": 1}})
    assert not answer or "activationId" not in answer


def test_firing_runs_the_rules_action_with_the_event(client, trigger, rule):
    fired = client.triggers.invoke({"name": trigger, "params": {"x": 1}})
    record = client.activations.get(fired)
    assert record["name"] == trigger
    assert "end" not in record or not record["end"]
    assert record["response"]["result"]["x"] == 1
    (line,) = map(json.loads, record["logs"])
    assert (line["rule"], line["action"]) == ("guest/rings", "guest/first")
    assert (line["success"], line["statusCode"]) == (True, 0)
    ours = wait_until(lambda: ended(client, line["activationId"]), what="the activation's record")
    assert {"x": 1, "from": "trigger"}.items() <= ours["response"]["result"].items()


def test_the_payload_goes_before_the_triggers_parameters(client, trigger, rule):
    fired = client.triggers.invoke({"name": trigger, "params": {"from": "payload"}})
    (line,) = map(json.loads, client.activations.get(fired)["logs"])
    ran = wait_until(lambda: ended(client, line["activationId"]), what="the activation's record")
    assert ran["response"]["result"]["from"] == "payload"


def test_a_rule_is_created_read_changed_and_deleted(client, trigger):
    made = client.rules.create({"name": "link", "trigger": trigger, "action": "/guest/first"})
    assert (made["namespace"], made["name"], made["version"]) == ("guest", "link", "0.0.1")
    assert made["status"] == "active"
    assert made["trigger"] == {"path": "guest", "name": trigger}
    assert made["action"] == {"path": "guest", "name": "first"}
    got = client.rules.get({"ruleName": "link"})
    assert (got["status"], got["action"]) == ("active", made["action"])
    shown = client.triggers.get(trigger)["rules"]
    assert shown == {"guest/link": {"action": {"path": "guest", "name": "first"}, "status": "active"}}
    client.rules.disable({"name": "link"})
    changed = client.rules.update({"name": "link", "trigger": trigger, "action": "second"})
    assert (changed["version"], changed["action"]["name"]) == ("0.0.2", "second")
    assert client.rules.get("link")["status"] == "inactive"
    assert client.rules.delete("link")["status"] == "inactive"
    assert client.triggers.get(trigger).get("rules", {}) == {}
    with pytest.raises(ClientError) as error:
        client.rules.get("link")
    assert error.value.status == 404


def test_a_rule_is_enabled_and_disabled(client, trigger, rule):
    client.rules.disable({"name": rule})
    assert client.rules.get(rule)["status"] == "inactive"
    answer = client.triggers.invoke({"name": trigger})
    assert not answer or "activationId" not in answer
    client.rules.enable({"name": rule})
    assert client.rules.get(rule)["status"] == "active"
    assert "activationId" in client.triggers.invoke({"name": trigger})


def test_rules_are_listed_without_status_and_counted(client, trigger):
    for name in ("one", "two"):
        client.rules.create({"name": name, "trigger": trigger, "action": "first"})
    listed = client.rules.list()
    assert [item["name"] for item in listed] == ["two", "one"]
    assert all("status" not in item for item in listed)
    assert [item["name"] for item in client.rules.list({"limit": 1, "skip": 1})] == ["one"]
    assert client.rules.list({"count": True}) == {"rules": 2}
    client.rules.delete(["one", "two"])


def test_a_rule_needs_both_its_ends(client, trigger):
    for ends, text in (
        ({"trigger": "silence", "action": "first"}, "trigger /guest/silence does not exist"),
        ({"trigger": trigger, "action": "nothing"}, "action /guest/nothing does not exist"),
    ):
        with pytest.raises(ClientError) as error:
            client.rules.create({"name": "half", **ends})
        assert (error.value.status, error.value.text) == (400, text)


def test_a_rule_outlives_its_trigger_and_sleeps(client):
    client.triggers.create({"name": "brief"})
    client.rules.create({"name": "left", "trigger": "brief", "action": "first"})
    client.triggers.delete("brief")
    assert client.rules.get("left")["status"] == "inactive"
    with pytest.raises(ClientError) as error:
        client.rules.enable({"name": "left"})
    assert error.value.status == 404
    client.rules.delete("left")


def test_a_stranger_reaches_none_of_it(client, stranger, trigger, rule):
    for resource, name in (("triggers", trigger), ("rules", rule)):
        for verb, options in (
            ("get", {"name": f"/guest/{name}"}),
            ("delete", {"name": f"/guest/{name}"}),
            ("list", {"namespace": "guest"}),
        ):
            with pytest.raises(ClientError) as error:
                getattr(getattr(stranger, resource), verb)(options)
            assert error.value.status == 403, (resource, verb)
    with pytest.raises(ClientError) as error:
        stranger.triggers.invoke({"name": f"/guest/{trigger}"})
    assert error.value.status == 403
    with pytest.raises(ClientError) as error:
        stranger.rules.disable({"name": f"/guest/{rule}"})
    assert error.value.status == 403
    assert client.rules.get(rule)["status"] == "active"
