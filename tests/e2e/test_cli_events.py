"""Triggers, rules and feeds from the command line."""

import json
import re

import pytest
from live_platform import QuickPlatform

from aliquot.testing.waiting import wait_until

ALARMS = "/whisk.system/alarms/alarm"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform")) as platform:
        (platform.folder / "echo.py").write_text("def main(args): return args\n")
        platform.aliquot("action", "create", "echo", "echo.py")
        yield platform


def value_of(pairs, key):
    return {pair["key"]: pair.get("value") for pair in pairs}[key]


def test_a_trigger_sets_off_what_its_active_rules_say(platform):
    platform.aliquot("trigger", "create", "uploaded", "-p", "kind", "jpg")
    assert "no active rule" in platform.aliquot("trigger", "fire", "uploaded")
    shown = platform.aliquot("rule", "create", "look", "uploaded", "echo")
    assert shown == "rule look 0.0.1, active: uploaded runs echo\n"
    fired = platform.json("trigger", "fire", "uploaded", "-p", "file", "cat.jpg")["activationId"]
    record = platform.json("activation", "get", fired, "--wait")
    assert record["response"]["result"] == {"file": "cat.jpg"}
    set_off = json.loads(record["logs"][0])
    assert json.dumps("guest/look") in platform.aliquot("logs", "uploaded")
    assert (set_off["rule"], set_off["success"]) == ("guest/look", True)
    got = platform.json("activation", "result", set_off["activationId"], "--wait")["result"]
    assert (got["kind"], got["file"]) == ("jpg", "cat.jpg")
    assert platform.json("rule", "disable", "look") == {"name": "look", "status": "inactive"}
    assert platform.json("trigger", "fire", "uploaded") == {"activationId": None}
    assert re.search(r"look +inactive +/guest/uploaded +/guest/echo", platform.aliquot("rule", "list"))
    assert "look is active" in platform.aliquot("rule", "enable", "look")
    assert platform.json("rule", "get", "look")["status"] == "active"
    assert re.search(r"trigger +/guest/uploaded *\n", platform.aliquot("rule", "get", "look"))
    platform.aliquot("rule", "update", "look", "uploaded", "/whisk.system/utils/echo")
    assert platform.json("rule", "get", "look")["action"] == {"path": "whisk.system/utils", "name": "echo"}
    assert [one["name"] for one in platform.json("trigger", "list")] == ["uploaded"]
    platform.aliquot("trigger", "update", "uploaded", "-p", "kind", "png")
    assert value_of(platform.json("trigger", "get", "uploaded")["parameters"], "kind") == "png"
    platform.aliquot("rule", "delete", "look", "--yes")
    platform.aliquot("trigger", "delete", "uploaded", "--yes")
    assert platform.json("rule", "list") == platform.json("trigger", "list") == []


def test_a_feed_fires_its_trigger_until_it_is_deleted(platform):
    platform.aliquot(
        "trigger", "create", "tick", "--feed", ALARMS, "-p", "cron", "* * * * * *", "-p", "trigger_payload", '{"a":1}'
    )
    trigger = platform.json("trigger", "get", "tick")
    assert value_of(trigger["annotations"], "feed") == ALARMS
    assert trigger["feed"]["config"]["cron"] == "* * * * * *"
    platform.aliquot("rule", "create", "on-tick", "tick", "echo")
    found = wait_until(lambda: platform.json("activation", "list", "tick"), what="the alarm's first activation")
    assert platform.json("activation", "get", found[0]["activationId"])["response"]["result"] == {"a": 1}
    platform.aliquot("trigger", "update", "tick", "-p", "cron", "0 0 1 1 *")
    assert platform.json("trigger", "get", "tick")["feed"]["config"]["cron"] == "0 0 1 1 *"
    platform.aliquot("trigger", "delete", "tick", "--yes")
    platform.aliquot("rule", "delete", "on-tick", "--yes")


def test_a_feed_that_refuses_leaves_no_trigger(platform):
    printed = platform.aliquot("trigger", "create", "never", "--feed", ALARMS, "-p", "cron", "nonsense", code=1)
    assert f"the feed {ALARMS} refused CREATE of never: " in printed
    assert "there is no trigger never" in platform.aliquot("trigger", "get", "never", code=5)
    (platform.folder / "stubborn.py").write_text(
        "def main(args):\n    deleting = args['lifecycleEvent'] == 'DELETE'\n"
        "    return {'error': 'no'} if deleting else {'got': args['authKey']}\n"
    )
    platform.aliquot("action", "create", "stubborn", "stubborn.py", "-a", "feed", "true")
    made = platform.json("trigger", "create", "held", "--feed", "stubborn")
    assert made["feed"] == {"got": platform.key}
    assert "refused DELETE of held: no" in platform.aliquot("trigger", "delete", "held", "--yes", code=1)
    platform.aliquot("trigger", "delete", "held", "--yes", "--force")
    assert platform.json("trigger", "list") == []
