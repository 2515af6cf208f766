"""A machine on which no control groups can be written: everything runs, and says plainly that nothing is enforced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

WORK = """
import os, time
KEPT = b"x" * (30 * 2**20)
def main(args):
    until = time.monotonic() + args.get("seconds", 0)
    while time.monotonic() < until:
        pass
    return {"cores": sorted(os.sched_getaffinity(0)), "nice": os.getpriority(os.PRIO_PROCESS, 0), "kept": len(KEPT)}
"""
HIDDEN = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
UNSHARE = ["unshare", "--mount", "--propagation", "private", "sh", "-c", HIDDEN, "sh"]
NOTHING = "slices of host devices are not enforced, nice values and cores alone ask for them"


def hides():
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not hides(), reason="control groups cannot be hidden here")


class Hidden(LiveServer):
    """A server that does not see the machine's control groups."""

    def command(self, command):
        return [*UNSHARE, *command]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden")
    with Hidden(folder / "data", "--devices", "host:2", "--device-memory", "100MiB", "--policy", "fcfs") as server:
        for name, share in (("less", 0.1), ("more", 0.9), ("both", 2)):
            needs = [{"key": "gpu-share", "value": share}, {"key": "gpu-memory", "value": "60MiB"}]
            server.deploy(name, WORK, annotations=needs)
        yield server


def call(server, name, **args):
    with server.client() as client:
        record = client.post(f"actions/{name}", params={"blocking": "true"}, json=args).json()
    said = {each["key"]: each["value"] for each in record["annotations"]}
    return record["response"]["result"], said["device"], said["start"]


def run(server, *command):
    env = {**os.environ, "COLUMNS": "200", "ALIQUOT_DATA": str(server.data)}
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-m", "aliquot", *command], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_server_says_so_in_one_line_and_runs_functions_with_slices(server):
    said = server.log.read_text()
    assert f"without {NOTHING}: /sys/fs/cgroup: no controller cpu, cpuacct, cpuset" in said
    assert call(server, "less")[0] == {"cores": [last_core()], "nice": 10, "kept": 30 * 2**20}
    assert call(server, "more")[0]["nice"] == 0


def last_core():
    return max(os.sched_getaffinity(0))


def test_whole_devices_and_swapping_work_there_too(server):
    assert call(server, "both")[1] == "host-1,host-2"
    assert call(server, "less")[2] == "swap_in"  # they do not fit together, and what is swapped out is stopped
    assert call(server, "both")[1:] == ("host-1,host-2", "swap_in")


def test_what_is_used_is_seen_and_shown_as_not_enforced(server):
    call(server, "less", seconds=1.2)
    shown = run(server, "top", "--once")
    assert "not enforced on host-1, host-2: nothing keeps functions to their slices there" in shown
    (row,) = json.loads(run(server, "usage", "less", "--json"))
    assert row["enforced"] is False
    assert row["compute_s"] > 0
    assert row["peak_bytes"] > 30 * 2**20
    assert "not enforced: nothing limits these to their requested shares" in run(server, "usage")


def test_the_doctor_says_what_nobody_is_held_to(server):
    found = {each["name"]: each for each in json.loads(run(server, "doctor", "--json"))}
    assert not found["host devices"]["ok"]
    assert found["host devices"]["detail"].startswith("compute: not enforced (nice, cores)")
    assert NOTHING in found["host devices"]["consequence"]
    assert "memory is bounded for each process" in found["control groups"]["consequence"]


def test_too_much_memory_still_ends_a_function_alone(server):
    server.deploy("eater", "def main(args):\n    return {'n': len(bytearray(2**30))}", limits={"memory": 128})
    with server.client() as client:
        record = client.post("actions/eater", params={"blocking": "true"}, json={}).json()
    assert not record["response"]["success"]
    assert call(server, "less")[0]["kept"] == 30 * 2**20


def test_nothing_is_left_of_what_was_stopped(tmp_path):
    with Hidden(tmp_path / "data", "--devices", "host:1", "--device-memory", "100MiB") as server:
        for name in ("one", "two"):
            needs = [{"key": "gpu-share", "value": 0.5}, {"key": "gpu-memory", "value": "60MiB"}]
            server.deploy(name, WORK, annotations=needs)
            call(server, name)
        pids = server.descendants()
    wait_until(
        lambda: [pid for pid in pids if Path(f"/proc/{pid}").exists()],
        lambda left: not left,
        what="the server's processes to end",
    )
