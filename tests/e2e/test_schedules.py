"""Schedules of functions on a real server: they fire, follow the annotation, and end with the function."""

import pytest

from aliquot.testing.client import to_pairs
from aliquot.testing.waiting import wait_until

CODE = "def main(args):\n    return {'called': args}\n"


@pytest.fixture
def client(shared_server):
    with shared_server.client() as client:
        yield client


def deploy(client, name="often", **annotations):
    annotations = {"schedule": "* * * * * *", **annotations}
    client.deploy(name, CODE, annotations=to_pairs({k: v for k, v in annotations.items() if v is not None}))


def records(client):
    return client.get("activations", params={"name": "often", "limit": 200}).json()


def test_a_scheduled_function_is_called_until_it_is_deleted(client):
    deploy(client)
    wait_until(lambda: len(records(client)) >= 2, what="two calls by the schedule")
    rule = client.get("rules/often.scheduled").json()
    assert (rule["status"], rule["trigger"]["name"], rule["action"]["name"]) == ("active", "often.schedule", "often")
    client.delete("actions/often").raise_for_status()
    for path in ("triggers/often.schedule", "rules/often.scheduled"):
        assert client.get(path).status_code == 404
    deploy(client)  # the same again
    client.delete("actions/often").raise_for_status()


def test_a_schedule_follows_the_annotation(client):
    deploy(client, schedule="0 0 1 1 *")
    alarm = client.get("alarms/often.schedule").json()["config"]
    assert alarm["cron"] == "0 0 1 1 *"
    deploy(client, schedule="0 12 * * *")
    assert client.get("alarms/often.schedule").json()["config"]["cron"] == "0 12 * * *"
    body = {"exec": {"kind": "python:3.11", "code": CODE}, "delAnnotations": ["schedule"]}
    client.put("actions/often", params={"overwrite": "true"}, json=body).raise_for_status()
    assert client.get("triggers/often.schedule").status_code == 404
    client.delete("actions/often").raise_for_status()


def test_a_schedule_in_a_package_and_one_that_is_refused(client):
    client.put("packages/box", json={}).raise_for_status()
    deploy(client, "box/inner", schedule="@yearly")
    assert client.get("rules/box.inner.scheduled").json()["action"] == {"path": "guest/box", "name": "inner"}
    client.delete("packages/box", params={"force": "true"}).raise_for_status()
    for path in ("triggers/box.inner.schedule", "rules/box.inner.scheduled", "alarms/box.inner.schedule"):
        assert client.get(path).status_code == 404
    client.put("triggers/mine.schedule", json={}).raise_for_status()
    for name, schedule, status, text in (
        ("bad", "61 * * * *", 400, "annotation schedule: "),
        ("bad", 5, 400, "it takes one such as '*/5 * * * *', in UTC"),
        ("mine", "@yearly", 409, "it needs the name mine.schedule, which something else has"),
    ):
        body = {"exec": {"kind": "python:3.11", "code": CODE}, "annotations": to_pairs({"schedule": schedule})}
        refused = client.put(f"actions/{name}", json=body)
        assert (refused.status_code, text in refused.text) == (status, True), refused.text
        assert client.get(f"actions/{name}").status_code == 404
