"""What-if over HTTP: the operator asks the server, which answers from its own journal."""

import pytest
from live_platform import QuickPlatform

from aliquot.testing.server import CallError
from aliquot.testing.waiting import wait_until

SLEEP = "import time\ndef main(args):\n    time.sleep(args['seconds'])\n    return args\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("whatif")) as platform:
        platform.deploy("sleep", SLEEP)
        yield platform


def state(platform):
    return platform.operate("GET", "whatif")


def ended(platform):
    return wait_until(lambda: (found := state(platform))["phase"] != "running" and found, what="the answer")


def test_a_question_is_answered_from_the_journal(platform):
    assert state(platform)["phase"] == "none"
    platform.operate("POST", "whatif", json={"policies": ["fcfs"]})
    assert "no call ended in this time" in ended(platform)["error"]
    for _ in range(3):
        platform.aliquot("invoke", "sleep", "-p", "seconds=0.05")
    begun = platform.operate("POST", "whatif", json={"policies": ["fcfs", "sjf"], "lastSeconds": 600})
    assert begun["phase"] == "running"
    found = ended(platform)
    assert found["phase"] == "done", found["error"]
    assert [row["calls"] for row in (found["report"]["measured"], *found["report"]["simulated"])] == [3] * 4


def test_a_question_that_is_cancelled_ends(platform):
    platform.operate("POST", "whatif", json={"policies": ["fcfs"]})
    with pytest.raises(CallError, match="another question is being answered"):
        platform.operate("POST", "whatif", json={"policies": ["fcfs"]})
    assert platform.operate("DELETE", "whatif")["error"] == "it was cancelled"


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"policies": []}, "policies"),
        ({"policies": ["nobody"]}, "there is no 'nobody'; it takes some of"),
        ({"policies": ["/etc/passwd:X"]}, "there is no '/etc/passwd:X'"),
        ({"policies": ["fcfs", "fcfs"]}, "each takes part once"),
        ({"policies": ["fcfs"], "lastSeconds": 0}, "lastSeconds"),
        ({"policies": ["fcfs"], "devices": 0}, "devices"),
        ({"policies": ["fcfs"], "weights": {"--json": 1}}, "is not the name of a namespace"),
        ({"policies": ["fcfs"], "other": 1}, "other"),
    ],
)
def test_a_wrong_question_is_refused(platform, question, complaint):
    with pytest.raises(CallError, match=complaint):
        platform.operate("POST", "whatif", json=question)
