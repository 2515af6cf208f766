"""Functions that declare `warm` on a real server: their first call finds a sandbox ready."""

import pytest
from live_platform import QuickPlatform

from aliquot.testing.client import from_pairs, to_pairs
from aliquot.testing.waiting import wait_until

CODE = """
import aliquot
app = aliquot.App("held")

@app.cls(warm=1)
class Model:
    @aliquot.enter
    def load(self):
        print("set up")

    def predict(self, x=1):
        return x
"""


@pytest.fixture
def platform(tmp_path):
    with QuickPlatform(tmp_path) as platform:
        yield platform


def ready_sandboxes(platform):
    """Return the functions of the sandboxes that are ready."""
    status = platform.operate("GET", "status")
    return [one["function"] for one in status["sandboxes"] if one["state"] == "warm"]


def test_a_held_function_is_ready_before_its_first_call_and_after_a_restart(platform):
    (platform.folder / "held.py").write_text(CODE)
    platform.aliquot("deploy", "held.py")
    for _ in range(2):
        wait_until(lambda: ready_sandboxes(platform) == ["held.Model"], what="the sandbox that is held")
        with platform.client() as client:
            record = client.call("held.Model", {"x": 3})
        assert record["response"]["result"] == {"value": 3}
        assert from_pairs(record["annotations"])["start"] == "warm"
        platform.stop()
        platform.start()
    assert " warm" in platform.aliquot("list").splitlines()[0]


def test_a_held_function_that_fails_to_start_is_not_started_over_and_over(platform):
    with platform.client() as client:
        client.deploy(
            "broken", "raise ValueError('no')\ndef main(args): return {}\n", annotations=to_pairs({"warm": 2})
        )
        assert "Cannot start action" in str(client.call("broken", {})["response"])
        client.deploy("fine", "def main(args): return {}\n", annotations=to_pairs({"warm": 1}))
        wait_until(lambda: ready_sandboxes(platform) == ["fine"], what="the sandbox that is held")
    assert platform.operate("GET", "status")["sandboxes_started"] < 10
