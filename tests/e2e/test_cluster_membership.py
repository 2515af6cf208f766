"""Rights of nodes, and the cluster after its head or a node is stopped. The transport is TCP."""

import json
import socket
import struct
import subprocess

import pytest
from awaiting import wait_for_record
from command_line import aliquot

from aliquot.testing.client import CallError, to_pairs
from aliquot.testing.cluster import LiveCluster
from aliquot.testing.waiting import wait_until

WHERE = """
import os, time

def main(args):
    time.sleep(args.get("s", 0))
    return {"device": os.environ["ALIQUOT_DEVICE"]}
"""
ON_NODES = to_pairs({"gpu-share": 0.05, "rerun": True})  # the head has no such device


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("head"), "--devices", "host:0", transport="tcp") as made:
        made.add_node("n1")
        made.deploy("where", WHERE, annotations=ON_NODES)
        yield made


def refused(cluster, folder, name, **options):
    """Let a machine join that must be refused, and return what it says."""
    command = cluster.node_command(name, **options)[3:]
    command[command.index("--data") + 1] = str(folder)
    return " ".join(aliquot(*command, cwd=folder, code=2).split())


def test_a_wrong_token_is_refused(cluster, tmp_path):
    token = cluster.token()["token"]
    wrong = token[:20] + ("A" if token[20] != "A" else "B") + token[21:]
    assert "its secret is not valid any more" in refused(cluster, tmp_path, "n2", token=wrong)
    assert "this is no join token" in refused(cluster, tmp_path, "n3", token="alq1.short")  # noqa: S106 - none


def test_a_name_in_use_is_refused(cluster, tmp_path):
    assert "the name 'n1' is in use by another machine" in refused(cluster, tmp_path, "n1")
    assert cluster.node("n1")["state"] == "ready"


def test_a_replaced_token_is_refused(cluster, tmp_path):
    before = cluster.token()["token"]
    cluster.token(rotate=True)
    assert "is not valid any more" in refused(cluster, tmp_path, "n4", token=before)


def test_garbage_harms_nobody(cluster):
    for data in (b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 2**31 - 1) + b"x", struct.pack("<I", 4) + b"\x00" * 4):
        with socket.create_connection(("127.0.0.1", cluster.node_port), timeout=60) as peer:
            peer.sendall(data)
            while peer.recv(65536):  # the challenge, and then the end
                pass
    with cluster.client() as client:
        assert client.result("where", {})["device"] == "n1/host-1"


def test_nodes_are_in_the_metrics_and_on_the_command_line(cluster, tmp_path, monkeypatch):
    page = cluster.metrics()
    assert 'aliquot_node_state{node="n1",state="ready"} 1.0' in page
    assert 'aliquot_node_round_trip_seconds{node="n1"}' in page
    monkeypatch.setenv("ALIQUOT_DATA", str(cluster.data))
    assert "n1/host-1" in aliquot("node", "show", "n1", cwd=tmp_path)
    listed = json.loads(aliquot("node", "list", "--json", cwd=tmp_path))
    assert [node["name"] for node in listed] == ["head", "n1"]
    assert "nodes" in aliquot("top", "--once", cwd=tmp_path)


def test_the_heads_own_devices_and_unknown_nodes_cannot_be_drained(cluster):
    for name, status in (("head", "409"), ("n9", "404")):
        with pytest.raises(CallError, match=status):
            cluster.operate("POST", f"nodes/{name}/drain", json={})


def test_files_of_the_head_keep_a_function_there(cluster):
    cluster.operate("POST", "namespaces", json={"name": "lab"})
    with cluster.client() as client:
        client.deploy("grouped", WHERE, annotations=to_pairs({"group": "g"}))
        assert client.result("grouped", {})["device"] == "cpu"
        with pytest.raises(CallError, match="this function needs the head"):
            client.deploy("on-gpu", WHERE, annotations=to_pairs({"group": "g", "gpu-share": 0.1}))


def test_accepted_calls_outlive_the_head_and_nodes_find_the_next_one(cluster):
    agent = cluster.nodes["n1"].agent()
    with cluster.client() as client:
        client.result("where", {})
        accepted = [client.post("actions/where", json={"s": 0.5}).json()["activationId"] for _ in range(4)]
    cluster.kill()
    cluster.start()
    cluster.wait_for_state("n1", "ready")
    assert cluster.nodes["n1"].agent() != agent
    with cluster.client() as client:
        for call in accepted:
            assert wait_for_record(client, call)["response"]["success"]


def test_a_node_that_is_stopped_lets_its_calls_end(cluster):
    with cluster.client() as client:
        call = client.post("actions/where", json={"s": 1}).json()["activationId"]
        wait_until(lambda: cluster.node("n1")["sandboxes"], what="the call to run")
        assert cluster.nodes["n1"].stop() == 0
        record = wait_for_record(client, call)
        assert record["response"]["result"] == {"device": "n1/host-1"}, record["response"]
        cluster.wait_for_state("n1", "away")
        waiting = client.post("actions/where", json={}).json()["activationId"]
        cluster.nodes["n1"].start()
        assert wait_for_record(client, waiting)["response"]["success"]


def test_a_removed_node_is_refused(cluster):
    cluster.wait_for_state("n1", "ready")
    cluster.operate("POST", "nodes/n1/remove")
    assert cluster.nodes["n1"].process.wait(60) == 1
    assert "the operator has removed node n1" in cluster.nodes["n1"].log.read_text()
    assert [node["name"] for node in cluster.operate("GET", "nodes")] == ["head"]
    command = cluster.node_command("n1")
    at = command.index("--token")
    again = [*command[:at], *command[at + 2 :]]
    done = subprocess.run(again, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "was removed; join again" in done.stderr + done.stdout
