"""The history of a real server: searches by two namespaces, a historian that is killed, a key that is taken back."""

import json
import os
import signal

import httpx
import psutil
import pytest
from console_client import ConsoleClient
from live_platform import QuickPlatform

from aliquot.testing.waiting import wait_until

ECHO = "def main(args):\n    if 'wrong' in args: raise ValueError(args['wrong'])\n    return args\n"
ROUTES = ("activations", "activations?cause=full", "decisions", "slices", "series", "figures?name=mine", "overview")


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("history")) as platform:
        yield platform


@pytest.fixture(scope="module")
def keys(platform):
    """Two namespaces with a function each, whose names and errors the other must not see."""
    made = {name: platform.create_namespace(name) for name in ("ours", "theirs")}
    for name, key in made.items():
        with httpx.Client(base_url=platform.url, auth=tuple(key.split(":")), timeout=60) as client:
            body = {"exec": {"kind": "python:3.11", "code": ECHO}}
            client.put("/api/v1/namespaces/_/actions/mine", json=body).raise_for_status()
            for given in ({}, {"wrong": f"secret of {name}"}):
                client.post("/api/v1/namespaces/_/actions/mine?blocking=true", json=given)
    return made


def observe(platform, route, key=None):
    auth = tuple(key.split(":")) if key else None
    headers = {} if key else {"authorization": f"Bearer {platform.operator}"}
    return httpx.get(f"{platform.url}/api/v1/observe/{route}", auth=auth, headers=headers, timeout=60)


def test_no_route_tells_one_namespace_about_another(platform, keys):
    for route in ROUTES:
        told = observe(platform, route, keys["ours"])
        assert told.status_code == 200
        assert "theirs" not in told.text
    own = observe(platform, "activations", keys["ours"]).json()["calls"]
    assert [call["error"] for call in own if "error" in call] == ["secret of ours"]
    theirs = observe(platform, "activations?namespace=theirs", keys["ours"]).json()["calls"]
    assert {call["namespace"] for call in theirs} == {"ours"}  # only the operator chooses


@pytest.mark.usefixtures("keys")
def test_the_operator_searches_all_namespaces_and_one(platform):
    found = observe(platform, "activations?status=failed").json()
    assert {call["namespace"] for call in found["calls"]} == {"ours", "theirs"}
    assert {call["namespace"] for call in observe(platform, "activations?namespace=ours").json()["calls"]} == {"ours"}
    assert observe(platform, "figures?name=mine&namespace=ours").json()["calls"] == 2
    assert observe(platform, "series?last=600").json()["totals"]["theirs"]["arrivals"] == 2


def historian_of(platform):
    """Return the process id of the historian, which is a child of the server."""
    children = psutil.Process(platform.process.pid).children()
    return next((each.pid for each in children if "historian.process" in " ".join(each.cmdline())), None)


@pytest.mark.usefixtures("keys")
def test_a_killed_historian_is_started_again_by_the_next_question(platform):
    before = observe(platform, "activations").json()["calls"]
    killed = historian_of(platform)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: observe(platform, "activations").status_code == 200, what="another historian", pause_s=0.1)
    assert observe(platform, "activations").json()["calls"] == before
    assert historian_of(platform) != killed


def test_a_stream_tells_changes_and_ends_when_its_key_is_taken_back(platform):
    key = platform.create_namespace("watcher")
    client = ConsoleClient(json.loads((platform.data / "local.json").read_text())["console"])
    client.log_in(key=key)
    headers = {"cookie": client.cookie, "sec-fetch-site": "same-origin"}
    url = f"http://{client.host}/console/api/v1/observe/stream"
    with httpx.stream("GET", url, headers=headers, timeout=60) as stream:
        lines = stream.iter_lines()
        first = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        assert {"devices", "flows", "queued"} <= first.keys()
        platform.operate("POST", "namespaces/watcher/keys", json={"keep": False})
        assert sum(1 for _ in lines) < 100  # it ends, since the console looks at the key with each tick
    assert client.send("GET", "/console/api/v1/observe/overview").status == 401
