"""The npm client's verbs on feeds: the alarms that come with the platform really fire."""

import time

import pytest
from awaiting import wait_until_idle
from npm_client import ClientError, needs_node

from aliquot.testing.waiting import wait_until

pytestmark = needs_node

ALARM = "/whisk.system/alarms/alarm"


@pytest.fixture
def trigger(client):
    client.actions.create({"name": "heard", "action": "def main(args): return args", "kind": "python:3.11"})
    client.triggers.create({"name": "tick", "annotations": {"feed": ALARM}})
    client.rules.create({"name": "hears", "trigger": "tick", "action": "heard"})
    yield "tick"
    client.rules.delete("hears")
    client.triggers.delete("tick")
    client.actions.delete("heard")


def heard(client, more_than=0):
    """The activations of the action, once there are more than so many."""
    return wait_until(
        lambda: client.activations.list({"name": "heard", "docs": True}),
        lambda found: len(found) > more_than,
        what=f"more than {more_than} activations",
        pause_s=0.1,
    )


def test_an_alarm_fires_by_its_clock_until_it_is_deleted(server, client, trigger):
    params = {"cron": "* * * * * *", "trigger_payload": {"tick": 1}}
    made = client.feeds.create({"feedName": ALARM, "trigger": trigger, "params": params})
    assert made["response"]["success"] is True
    assert heard(client, more_than=1)[0]["response"]["result"]["tick"] == 1
    got = client.feeds.get({"name": ALARM, "trigger": trigger})
    assert got["response"]["success"] is True
    assert got["response"]["result"]["config"]["cron"] == "* * * * * *"
    changed = client.feeds.update(
        {"feedName": ALARM, "trigger": trigger, "params": {"cron": "* * * * * *", "trigger_payload": {"tick": 2}}}
    )
    assert changed["response"]["success"] is True
    wait_until(
        lambda: heard(client)[0]["response"]["result"]["tick"],
        lambda tick: tick == 2,
        what="the changed alarm",
        pause_s=0.1,
    )
    assert client.feeds.delete({"feedName": ALARM, "trigger": trigger})["response"]["success"] is True
    wait_until_idle(server)
    count = len(heard(client))
    time.sleep(2.1)
    assert len(heard(client)) == count


def test_an_alarm_may_fire_once(client, trigger):
    soon = int(time.time() * 1000) + 1000
    before = len(client.activations.list({"name": "heard"}))
    made = client.feeds.create({"feedName": "/whisk.system/alarms/once", "trigger": trigger, "params": {"date": soon}})
    assert made["response"]["success"] is True
    assert len(heard(client, more_than=before)) == before + 1
    client.feeds.delete({"feedName": "/whisk.system/alarms/once", "trigger": trigger})


def test_a_clock_that_is_none_is_refused(client, trigger):
    with pytest.raises(ClientError) as error:
        client.feeds.create({"feedName": ALARM, "trigger": trigger, "params": {"cron": "sometimes"}})
    assert error.value.status == 502
    assert error.value.body["response"]["status"] == "application error"


def test_a_feed_of_another_namespaces_trigger_is_refused(client, stranger, trigger):
    with pytest.raises(ClientError):
        stranger.feeds.create({"feedName": ALARM, "trigger": f"/guest/{trigger}", "params": {"cron": "* * * * * *"}})
