"""A head and its nodes, each a process of its own on this machine: calls, loss, silence and return."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from awaiting import wait_for_record
from command_line import aliquot

from aliquot.sdk.events import ACCEPT
from aliquot.testing.client import CallError, from_pairs, to_pairs
from aliquot.testing.cluster import LiveCluster
from aliquot.testing.waiting import wait_until

WORK = """
import os, time, uuid

BORN = uuid.uuid4().hex

def main(args):
    for number in range(args.get("lines", 0)):
        print("line", number, flush=True)
    time.sleep(args.get("s", 0))
    return {"device": os.environ["ALIQUOT_DEVICE"], "born": BORN, "text": "x" * args.get("size", 0)}
"""
ON_NODES = {"gpu-share": 0.05}  # the head has no such device
LIMITS = ("--devices", "host:0", "--node-suspect", "1s", "--node-lost", "3s")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("head"), *LIMITS) as made:
        made.add_node("n1")
        made.deploy("work", WORK, annotations=to_pairs(ON_NODES))
        yield made


def test_a_function_runs_on_a_node_as_on_the_head(cluster):
    with cluster.client() as client:
        record = wait_for_record(client, client.call("work", {"lines": 3})["activationId"])
    assert record["response"]["result"]["device"] == "n1/host-1"
    assert from_pairs(record["annotations"])["node"] == "n1"
    assert from_pairs(record["annotations"])["device"] == "n1/host-1"
    assert [line.split(" ", 2)[2] for line in record["logs"]] == ["line 0", "line 1", "line 2"], record["logs"]


def test_large_bodies_reach_a_node_and_come_back(cluster):
    with cluster.client() as client:
        result = client.result("work", {"size": 5_000_000, "ballast": "y" * 3_000_000})
    assert len(result["text"]) == 5_000_000


def test_failures_on_a_node_are_the_functions_own(cluster):
    cluster.deploy("crash", "import os\ndef main(args):\n    os._exit(3)\n", annotations=to_pairs(ON_NODES))
    cluster.deploy("broken", "def main(args) return 1\n", annotations=to_pairs(ON_NODES))
    with cluster.client() as client:
        for name in ("crash", "broken"):
            with pytest.raises(CallError):
                client.result(name, {})


def test_the_list_of_nodes_shows_the_head_and_each_node(cluster):
    nodes = {node["name"]: node for node in cluster.operate("GET", "nodes")}
    assert nodes["head"]["state"] == nodes["n1"]["state"] == "ready"
    assert [device["name"] for device in nodes["n1"]["devices"]] == ["n1/cpu", "n1/host-1"]
    assert nodes["n1"]["roundTripMs"] > 0


def test_an_agent_that_is_killed_ends_what_it_ran_and_comes_back(cluster):
    cluster.deploy("again", WORK, annotations=to_pairs(ON_NODES | {"rerun": True}))
    with cluster.client() as client, ThreadPoolExecutor(2) as threads:
        born = client.result("work", {})["born"]
        lost, repeated = (threads.submit(client.call, name, {"s": 3, "lines": 2}) for name in ("work", "again"))
        wait_until(lambda: cluster.node("n1")["sandboxes"], lambda number: number >= 2, what="both to run")
        wait_until(lambda: running(cluster), lambda number: number >= 2, what="both to have begun")
        cluster.nodes["n1"].signal_agent(signal.SIGKILL)
        error = lost.result()["response"]["result"]["error"]
        assert "node n1 was lost while it ran" in error, error
        assert "rerun" in error, error
        assert repeated.result()["response"]["success"]
        cluster.wait_for_state("n1", "ready")
        assert client.result("work", {})["born"] != born


def running(cluster):
    """Return the number of calls that run on the cluster's devices."""
    return sum(device["running"] for device in cluster.operate("GET", "status")["devices"])


def test_a_node_that_is_silent_is_suspected_and_goes_on_if_it_returns_in_time(cluster):
    with cluster.client() as client, ThreadPoolExecutor(1) as threads:
        first = client.result("work", {})
        call = threads.submit(client.call, "work", {"s": 0.5})
        wait_until(lambda: running(cluster), what="the call to run")
        agent = cluster.nodes["n1"].agent()
        cluster.nodes["n1"].signal_agent(signal.SIGSTOP)
        cluster.wait_for_state("n1", "suspected")
        cluster.nodes["n1"].signal_agent(signal.SIGCONT)
        assert call.result()["response"]["result"]["born"] == first["born"]
        cluster.wait_for_state("n1", "ready")
        assert cluster.nodes["n1"].agent() == agent


def test_a_node_that_stays_silent_is_lost_and_its_late_outcome_counts_for_nothing(cluster):
    with cluster.client() as client, ThreadPoolExecutor(1) as threads:
        client.result("work", {})
        call = threads.submit(client.call, "work", {"s": 0.2})
        wait_until(lambda: running(cluster), what="the call to run")
        agent = cluster.nodes["n1"].agent()
        cluster.nodes["n1"].signal_agent(signal.SIGSTOP)
        record = call.result()
        assert "n1 was lost" in record["response"]["result"]["error"], record
        cluster.nodes["n1"].signal_agent(signal.SIGCONT)
        cluster.wait_for_state("n1", "ready")
        assert cluster.nodes["n1"].agent() != agent  # it does not go on with what the head has given up
        assert wait_for_record(client, record["activationId"])["response"] == record["response"]


def test_calls_wait_for_a_node_that_was_lost(cluster):
    with cluster.client() as client, ThreadPoolExecutor(4) as threads:
        cluster.nodes["n1"].signal_agent(signal.SIGKILL)
        calls = [threads.submit(client.result, "work", {}) for _ in range(4)]
        assert {call.result()["device"] for call in calls} == {"n1/host-1"}


def test_lines_come_while_a_call_runs_on_a_node(cluster):
    with cluster.client() as client:
        asked = client.post("actions/work", json={"lines": 2, "s": 2}).json()["activationId"]
        with client.stream("GET", f"activations/{asked}", headers=ACCEPT) as events:
            line = next(line for line in events.iter_lines() if "line 1" in line)
        assert client.get(f"activations/{asked}").status_code == 404, f"{line} came with the end of the call"
        wait_for_record(client, asked)


def test_a_drained_node_gets_no_work_until_it_is_undrained(cluster):
    with cluster.client() as client, ThreadPoolExecutor(1) as threads:
        client.result("work", {})
        cluster.operate("POST", "nodes/n1/drain", json={})
        cluster.wait_for_state("n1", "drained")
        call = threads.submit(client.result, "work", {})
        time.sleep(0.3)
        assert not call.done()
        cluster.operate("POST", "nodes/n1/undrain")
        assert call.result()["device"] == "n1/host-1"
    assert cluster.node("n1")["state"] == "ready"


def test_functions_on_a_node_call_the_platform_with_their_key(cluster):
    cluster.deploy(
        "caller",
        "import json, os, urllib.request, base64\n"
        "def main(args):\n"
        "    key = base64.b64encode(os.environ['__OW_API_KEY'].encode()).decode()\n"
        "    url = os.environ['__OW_API_HOST'] + '/api/v1/namespaces/_/actions/work?blocking=true&result=true'\n"
        "    request = urllib.request.Request(url, b'{}', {'Authorization': 'Basic ' + key,"
        " 'Content-Type': 'application/json'})\n"
        "    return json.load(urllib.request.urlopen(request))\n",
        annotations=to_pairs(ON_NODES | {"provide-api-key": True}),
    )
    with cluster.client() as client:
        assert client.result("caller", {})["device"] == "n1/host-1"


APP = """
import os

import aliquot

app = aliquot.App("lab")


@app.function(gpu=0.05)
def parts(n):
    yield from range(n)


@app.function(gpu=0.05)
def inner(data):
    return data + b"!"


@app.function(gpu=0.05, calls=True)
def outer(n):
    return {"size": len(inner.remote(b"x" * n)), "device": os.environ["ALIQUOT_DEVICE"]}
"""


def test_functions_of_the_sdk_run_on_a_node_and_call_each_other_with_large_values(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("ALIQUOT_DATA", str(cluster.data))
    (tmp_path / "lab.py").write_text(APP)
    aliquot("deploy", "lab.py", cwd=tmp_path)
    found = json.loads(aliquot("invoke", "lab.outer", "-p", "n", "3000000", cwd=tmp_path))
    assert found == {"size": 3_000_001, "device": "n1/host-1"}
    assert aliquot("invoke", "lab.parts", "-p", "n", "3", cwd=tmp_path).split()[-5:] == ["0,", "1,", "2", "]", "}"]
