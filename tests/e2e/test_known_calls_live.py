"""Calls that are known to come find a warm sandbox on a real server: of sequences, workflows and alarms."""

import json
import os
import signal

import pytest
from live_platform import QuickPlatform

from aliquot.testing.client import from_pairs
from aliquot.testing.waiting import wait_until

FIRST = "import time\ndef main(args):\n    time.sleep(1.5)\n    return {}\n"
SECOND = "import time\ntime.sleep(0.4)\ndef main(args):\n    return {}\n"
# Nothing is held by forecasts, because their windows are long, and sandboxes stop at once.
OPTIONS = ("--provisioning", "forecast", "--set", "forecast.step_s=600", "--keepalive", "fixed_ttl",
           "--set", "fixed_ttl.ttl_s=0.3")  # fmt: skip
WORKFLOW = {
    "StartAt": "A",
    "States": {
        "A": {"Type": "Task", "Resource": "first", "Next": "B"},
        "B": {"Type": "Task", "Resource": "second", "End": True},
    },
}


@pytest.fixture
def platform(tmp_path):
    with QuickPlatform(tmp_path, *OPTIONS) as platform:
        yield platform


def kinds_of_starts(client, name="second"):
    records = client.get("activations", params={"name": name, "docs": "true", "limit": 50}).json()
    return [
        (from_pairs(one["annotations"]).get("start"), from_pairs(one["annotations"]).get("hold")) for one in records
    ]


def starts_of_held(client, count):
    """Return the starts of the newest records in sandboxes that were started ahead, once there are so many records."""
    found = wait_until(lambda: kinds_of_starts(client), lambda all_: len(all_) >= count, what="records")
    return [start for start, hold in found if hold is not None]


def test_the_next_function_of_a_sequence_a_workflow_and_an_alarm_is_started_ahead(platform, tmp_path):
    with platform.client() as client:
        client.deploy("first", FIRST)
        client.deploy("second", SECOND)
        sequence = {"kind": "sequence", "components": ["/_/first", "/_/second"]}
        assert client.put("actions/both", json={"exec": sequence}).is_success
        client.call("first", {})  # its run time is known from now on
        client.call("both", {})
        assert starts_of_held(client, 1) == ["warm"]
        definition = tmp_path / "flow.json"
        definition.write_text(json.dumps(WORKFLOW))
        platform.aliquot("workflow", "deploy", definition, "--name", "flow")
        platform.aliquot("workflow", "run", "flow")
        assert starts_of_held(client, 2) == ["warm", "warm"]
        platform.aliquot(
            "trigger", "create", "often", "--feed", "/whisk.system/alarms/alarm", "-p", "cron", "*/3 * * * * *"
        )
        platform.aliquot("rule", "create", "tie", "often", "second")
        wait_until(lambda: len(starts_of_held(client, 2)) > 3, what="calls of an alarm in sandboxes started ahead")


def test_a_forecaster_that_hangs_holds_nothing_and_calls_go_on(platform):
    with platform.client() as client:
        client.deploy("second", SECOND)
        client.call("second", {})
        pid = wait_until(lambda: platform.operate("GET", "status")["forecasts"]["pid"], what="the forecaster")
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(20):
                assert client.call("second", {})["response"]["success"]
        finally:
            os.kill(pid, signal.SIGCONT)
