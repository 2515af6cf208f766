"""The page on operating a server does what it says: its lines are taken from it and run."""

import json
import os
import re
import shlex
import subprocess
import time
from inspect import signature

import pytest
from command_line import run_here
from live_platform import LivePlatform, QuickPlatform
from places import DOCS

from aliquot.cli.up import up
from aliquot.testing.waiting import wait_until

PAGE = (DOCS / "how-to" / "operate.md").read_text(encoding="utf-8")
LINES = re.findall(r"^ {4}(aliquot .*)$", PAGE, re.MULTILINE)
SLEEPS = "import time\ndef main(args):\n    time.sleep(args.get('s', 0))\n    return args\n"


def line_of(word):
    """Return the only line of the page that runs a command, without the name of the program."""
    (line,) = (line for line in LINES if line.startswith(f"aliquot {word}"))
    return shlex.split(line)[1:]


@pytest.fixture
def platform(tmp_path):
    with QuickPlatform(tmp_path) as platform:
        (tmp_path / "slow.py").write_text(SLEEPS)
        platform.aliquot("action", "create", "slow", "slow.py")
        yield platform


def at(platform, words, folder="/srv/aliquot", place=None):
    """Return the words of a line with the page's folder replaced by that of the test."""
    return [str(place or platform.data) if word == folder else word for word in words]


def test_tenants_are_made_weighed_and_given_new_keys(platform):
    for word in ("namespace create", "namespace set", "namespace rotate-key"):
        platform.aliquot(*line_of(word))
    listed = platform.json(*line_of("namespace list"))
    lab = next(one for one in listed if one["name"] == "lab")
    assert (lab["weight"], lab["invocationsPerMinute"], lab["concurrentInvocations"]) == (2, 600, 20)


def test_running_calls_end_and_their_callers_get_the_results(platform):
    caller = platform.begin("aliquot", "invoke", "slow", "-p", "s", "1.5")
    wait_for_runs(platform, 1)
    platform.aliquot(*at(platform, line_of("down")))
    out, err = caller.communicate()
    assert (caller.returncode, json.loads(out)) == (0, {"s": 1.5}), err
    assert "stopping: 1 call runs, at most 30 s" in platform.log.read_text()
    assert platform.process.wait() == 0
    assert "no server runs with the data folder" in platform.aliquot("down", code=3)
    platform.start()


def test_the_process_id_of_a_killed_server_may_be_anothers_by_now(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / "local.json").write_text(
            json.dumps({"pid": stranger.pid, "url": "http://127.0.0.1:1", "key": "a:b"})
        )
        (tmp_path / "lock").write_text(str(stranger.pid))
        done = run_here("down", "--data", str(tmp_path), cwd=tmp_path, environment=dict(os.environ))
        assert (done.code, stranger.poll()) == (3, None), done.out + done.err
        stranger.kill()


def test_now_does_not_wait_for_calls(platform):
    caller = platform.begin("aliquot", "invoke", "slow", "-p", "s", "50")
    wait_for_runs(platform, 1)
    begun = time.monotonic()
    platform.aliquot("down", "--now")
    assert time.monotonic() - begun < 25  # a hang guard: the grace is 30 s
    caller.communicate()
    assert caller.returncode != 0
    platform.process.wait()
    platform.start()


def test_a_backup_of_a_running_server_is_restored_and_started(platform, tmp_path):
    done = platform.json("invoke", "slow", "-p", "n", "1")
    # An accepted call is on the disk before it is acknowledged, and records are written before what comes after them.
    accepted = platform.aliquot("invoke", "slow", "-p", "s", "50", "--no-wait").strip()
    wait_for_runs(platform, 1)
    assert platform.aliquot(*at(platform, line_of("backup"))).startswith("wrote monday.tar.gz: ")
    restored = tmp_path / "elsewhere" / "data"
    said = platform.aliquot(*at(platform, line_of("restore"), "/srv/restored", restored))
    assert f"start it: aliquot up --data {restored}" in said
    with LivePlatform(restored.parent) as other:
        assert "of an earlier run: 1 accepted call taken up" in other.log.read_text()
        assert other.json("activation", "get", done["activationId"])["response"]["result"] == {"n": 1}
        other.key = platform.key
        with other.client() as client:  # the key of the first server is valid here, too
            assert client.result("slow", {"n": 2}) == {"n": 2}
        ended = other.json("activation", "get", accepted, "--wait")
        assert "interrupted" in json.dumps(ended["response"])
    platform.aliquot("activation", "cancel", accepted)


def test_the_unit_of_the_page_is_one_that_systemd_accepts(platform, tmp_path):
    unit = platform.aliquot(*line_of("service install"), "--show")
    assert "up --data /srv/aliquot --grace 30 --port 3233" in unit
    try:
        (tmp_path / "aliquot-page.service").write_text(unit)
        done = subprocess.run(
            ["systemd-analyze", "verify", tmp_path / "aliquot-page.service"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("systemd is not installed")
    assert (done.returncode, "aliquot-page" in done.stderr) == (0, False), done.stderr


def test_every_line_of_the_page_is_tested():
    assert {line.split()[1] for line in LINES} == {"up", "down", "service", "namespace", "backup", "restore"}
    taken = {parameter.replace("_", "-") for parameter in signature(up).parameters}
    used = re.findall(r"--([a-z-]+)", " ".join(line for line in LINES if line.startswith("aliquot up")))
    assert used
    assert set(used) <= taken


def wait_for_runs(platform, count):
    def running():
        return sum(device["running"] for device in platform.operate("GET", "status")["devices"])

    wait_until(running, lambda found: found == count, what=f"{count} calls to run")
