"""The forecaster of a real server: it holds a sandbox for an expected call, and a server goes on without it."""

import os
import signal
import time

import pytest
from live_platform import QuickPlatform

from aliquot.live.profile.log import MIN_BYTES, ProfileLog
from aliquot.live.profile.records import ProfileRow
from aliquot.testing.client import from_pairs
from aliquot.testing.waiting import wait_until

CODE = "def main(args): return {}\n"
STEP_S, PERIOD_S, CALLS = 2, 8, 100
OPTIONS = ("--provisioning", "forecast", "--set", f"forecast.step_s={STEP_S}", "--set", "forecast.price=0.0001")


def record_regular_calls(folder):
    """Write profiles in which a function was called at regular times until now."""
    (folder / "data").mkdir(mode=0o700)
    log = ProfileLog(folder / "data" / "profile", 10 * MIN_BYTES)
    now_s = int(time.time())
    for number in range(CALLS):
        t_s = now_s - (CALLS - number) * PERIOD_S
        log.add([ProfileRow("guest", "report", t_s, 1, 1, 1, 0, 0.1, 0.0, 0.0, 1, 1, 0, 0, 1, 0, False, {})])
    log.close()


@pytest.fixture
def platform(tmp_path):
    record_regular_calls(tmp_path)
    with QuickPlatform(tmp_path, *OPTIONS) as platform:
        yield platform


def forecaster_of(platform):
    return platform.operate("GET", "status")["forecasts"]["pid"]


def call_when_held(platform, client):
    """Call the function once a sandbox is held for it, and return its annotations, or None if that has just lapsed."""
    client.deploy("report", CODE)  # without the sandboxes of earlier calls
    wait_until(
        lambda: [
            one
            for one in platform.operate("GET", "status")["sandboxes"]
            if (one["function"], one["uses"], one["state"]) == ("report", 0, "warm")
        ],
        what="a sandbox that is held for the expected call",
    )
    told = from_pairs(client.call("report", {})["annotations"])
    return told if "hold" in told else None


def test_a_call_that_is_expected_finds_a_sandbox_and_a_killed_forecaster_comes_back(platform):
    with platform.client() as client:
        client.deploy("other", CODE)
        client.call("other", {})  # the forecaster starts with the first call
        told = wait_until(lambda: call_when_held(platform, client), what="a call in a sandbox that was held for it")
        assert told["start"] == "warm"
        assert told["hold"]["hiddenTime"] > 0
        shown = wait_until(lambda: platform.json("forecast", "list"), what="a forecast in the command's list")
        assert {"chance", "window_s", "low", "middle", "high", "model"} <= set(shown[0])
        first = wait_until(lambda: forecaster_of(platform), what="the forecaster")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: forecaster_of(platform) not in {None, first}, what="another forecaster")
        assert client.call("other", {})["response"]["success"]
        told = wait_until(lambda: call_when_held(platform, client), what="a call that the other forecaster expected")
        assert told["start"] == "warm"
