"""Sandboxes move between virtual devices of a real server, in the midst of runs, and nothing is lost."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import run_here
from pages import DocumentPage

from aliquot.live.device.slices.base import ROOT
from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.client import CallError, to_pairs
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

WORK = """
import time
def main(args):
    until, count = time.monotonic() + args.get("seconds", 0), 0
    while time.monotonic() < until:
        count += 1
    return {"number": args.get("number"), "count": count}
"""
PAGE = DocumentPage("how-to/forecasts.md")
FORECASTS = ("--provisioning", "forecast", "--set", "forecast.step_s=4", "--keepalive", "none")


@pytest.fixture
def server(tmp_path):
    with LiveServer(tmp_path / "data", "--devices", "host:2", *FORECASTS) as server:
        server.deploy("work", WORK, annotations=to_pairs({"gpu-share": 0.25}))
        yield server


def invoke(server, arguments):
    with server.client() as client:
        return client.result("work", arguments)


def sandboxes(server):
    return {one["sandbox"]: one for one in server.operate("GET", "status")["sandboxes"]}


def busy(server):
    return [number for number, one in sandboxes(server).items() if one["state"] == "busy"]


def groups(pid):
    """Return the control groups of a process by controller."""
    lines = (line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    return {controller: group for _, controller, group in lines}


def test_a_running_loop_moves_with_its_process_and_a_replay_commands_the_same(server):
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(invoke, server, {"seconds": 3, "number": 7})
        wait_until(lambda: busy(server), what="the loop to run")
        (number,) = busy(server)
        server.operate("POST", "moves", json={"sandbox": number, "device": "host-2"})
        wait_until(lambda: server.operate("GET", "status")["moves"]["done"] == 1, what="the move to end")
        moved = sandboxes(server)[number]
        assert (moved["device"], moved["state"]) == ("host-2", "busy")
        if (ROOT / "cpuset").is_dir() and os.access(ROOT / "cpu", os.W_OK):
            assert all("/host-2" in groups(moved["pid"])[controller] for controller in ("cpu", "cpuset", "cpuacct"))
        assert running.result()["number"] == 7
    assert sandboxes(server)[number]["uses"] == 1
    with pytest.raises(CallError, match="it is on host-2 already"):
        server.operate("POST", "moves", json={"sandbox": number, "device": "host-2"})
    assert replay_file(server.data).differences == []


def test_moves_under_load_lose_no_call_and_the_lines_of_the_page_run(server, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(invoke, server, {"seconds": 0.05, "number": number}) for number in range(120)]
        asked = 0
        while not all(call.done() for call in calls):
            for number, one in sandboxes(server).items():
                to = "host-1" if one["device"] == "host-2" else "host-2"
                with suppress(CallError):  # it is moving, or has no room there
                    server.operate("POST", "moves", json={"sandbox": number, "device": to})
                    asked += 1
        assert sorted(call.result()["number"] for call in calls) == list(range(120))
    moves = server.operate("GET", "status")["moves"]
    assert asked >= moves["done"] > 5
    assert moves["failed"] == 0
    assert 'aliquot_moves_total{outcome="done"}' in server.metrics()
    if sandboxes(server)[3]["device"] == "host-2":
        server.operate("POST", "moves", json={"sandbox": 3, "device": "host-1"})
    wait_until(lambda: sandboxes(server)[3]["device"] == "host-1", what="a sandbox on the first device")
    run = [
        words for name in ("How many devices are wanted", "Move a sandbox") for words in PAGE.section(name).commands()
    ]
    printed = [
        run_here(*words, cwd=tmp_path, environment={**os.environ, "ALIQUOT_DATA": str(server.data)}) for words in run
    ]
    assert [done.code for done in printed] == [0, 0]
    assert "half of" in printed[0].out
    assert printed[1].out == "sandbox 3 moves to host-2\n"
