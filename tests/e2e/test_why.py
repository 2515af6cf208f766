"""`aliquot why` on a real server: the causes of waits and starts, who may see them, and how a restart shows."""

import json
import re
import time

import pytest
from live_platform import LivePlatform
from places import DOCS

PAGE = (DOCS / "how-to" / "why.md").read_text(encoding="utf-8")
CODE = re.search(r"```python\n(# busy\.py\n.*?)```", PAGE, re.DOTALL)[1]


@pytest.fixture
def platform(tmp_path):
    (tmp_path / "busy.py").write_text(CODE)
    with LivePlatform(tmp_path, "--devices", "host:1") as platform:
        yield platform


def deploy_both(platform):
    platform.aliquot("deploy", "busy.py")
    platform.aliquot("invoke", "lab.train", "-p", "seconds=0")  # so that the next run begins at once


def causes(told):
    return [piece["cause"] for piece in told["pieces"] if piece["phase"] == "wait"]


def test_the_lines_of_the_page_tell_the_cause_of_the_wait(platform):
    for line in re.findall(r"^\$ aliquot (.*)", PAGE, re.MULTILINE):
        shown = platform.aliquot(*line.split())
    assert re.search(r"waited +\S+ m?s +█+·* +full: host-1: a share of 1 is taken, and it needs 0\.5", shown)
    assert "taken by guest/lab.train 100%" in shown
    assert "cold, because its function had no sandbox before" in shown


def test_the_pieces_add_up_to_the_call(platform):
    deploy_both(platform)
    platform.aliquot("invoke", "lab.train", "-p", "seconds=3", "--no-wait")
    platform.aliquot("invoke", "lab.classify")
    told = platform.json("why")
    assert causes(told) == ["full"]
    ends = [told["arrived"], *(piece["end"] for piece in told["pieces"])]
    assert [piece["start"] for piece in told["pieces"]] == ends[:-1]
    assert ends[-1] == told["ended"]
    record = platform.json("activation", "get")
    waited_ms = 1000 * sum(piece["end"] - piece["start"] for piece in told["pieces"] if piece["phase"] != "run")
    measured = {note["key"]: note["value"] for note in record["annotations"]}
    assert waited_ms == pytest.approx(measured["waitTime"] + measured.get("initTime", 0), abs=30)


def test_other_tenants_are_shown_without_names_except_to_the_operator(platform):
    deploy_both(platform)
    key = platform.create_namespace("stranger")
    other = {"ALIQUOT_URL": platform.url, "ALIQUOT_KEY": key}
    platform.aliquot("deploy", "busy.py", **other)
    platform.aliquot("invoke", "lab.train", "-p", "seconds=3", "--no-wait")
    platform.aliquot("invoke", "lab.classify", **other)
    told = platform.json("why", **other)
    assert [holder["namespace"] for holder in told["pieces"][0]["holders"]] == ["others"]
    assert "guest" not in json.dumps(told)
    identity = told["activationId"]
    seen = platform.json("why", "--operator", identity)
    assert [holder["namespace"] for holder in seen["pieces"][0]["holders"]] == ["guest"]
    assert identity in platform.aliquot("why", identity, code=5)  # the key of `guest`
    assert "0" * 32 in platform.aliquot("why", "0" * 32, code=5)


def test_a_call_that_still_waits_is_told_as_far_as_it_came(platform):
    deploy_both(platform)
    running = platform.aliquot("invoke", "lab.train", "-p", "seconds=30", "--no-wait").strip()
    waiting = platform.aliquot("invoke", "lab.classify", "--no-wait").strip()
    told = platform.json("why", waiting)
    assert (told["end"], causes(told)) == ("open", ["full"])
    platform.aliquot("activation", "cancel", running)  # the server would wait for it when it stops


def test_a_call_that_survives_a_killed_server_shows_the_time_it_was_down(platform):
    deploy_both(platform)
    platform.aliquot("invoke", "lab.train", "-p", "seconds=30", "--no-wait")
    waiting = platform.aliquot("invoke", "lab.classify", "--no-wait").strip()
    platform.kill()
    time.sleep(0.5)
    platform.start()
    platform.aliquot("activation", "get", waiting, "--wait")
    told = platform.json("why", waiting)
    phases = [piece["phase"] for piece in told["pieces"]]
    assert phases[:2] == ["wait", "restart"]
    assert phases[-1] == "run"
    (down,) = [piece for piece in told["pieces"] if piece["phase"] == "restart"]
    assert down["end"] - down["start"] >= 0.5


def test_a_sequence_has_no_wait_of_its_own(platform):
    deploy_both(platform)
    platform.aliquot("action", "create", "twice", "--sequence", "lab.train,lab.classify")
    platform.aliquot("invoke", "twice", "-p", "seconds=0", code=1)  # `classify` takes no value of `train`
    whole = platform.json("activation", "list", "twice")[0]["activationId"]
    assert "their parts have" in platform.aliquot("why", whole, code=5)
