"""Nodes in network namespaces of their own: real addresses, and cables that are pulled."""

import contextlib
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from aliquot.testing.client import to_pairs
from aliquot.testing.cluster import LiveCluster

pytestmark = pytest.mark.long
BRIDGE, HEAD = "alqtest0", "10.213.77.1"
NODES = ("n1", "n2", "n3")
SLEEP = """
import os, time

def main(args):
    time.sleep(args.get("s", 0.1))
    return {"device": os.environ["ALIQUOT_DEVICE"]}
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def remove_network():
    for words in (("link", "del", BRIDGE), *(("netns", "del", f"alq-{name}") for name in NODES)):
        with contextlib.suppress(subprocess.CalledProcessError):
            ip(*words)


@pytest.fixture
def network():
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    remove_network()
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{HEAD}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, name in enumerate(NODES, 2):
            space, here = f"alq-{name}", f"alq-{name}-h"
            ip("netns", "add", space)
            ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", here, "master", BRIDGE, "up")
            ip("-n", space, "addr", "add", f"10.213.77.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        remove_network()
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    yield
    remove_network()


@pytest.fixture
def cluster(network, tmp_path):  # noqa: ARG001 - it is there while the cluster is
    options = ("--devices", "host:0", "--node-suspect", "1s", "--node-lost", "4s")
    with LiveCluster(tmp_path / "head", *options, node_host=HEAD) as made:
        for name in NODES:
            made.add_node(name, program=("ip", "netns", "exec", f"alq-{name}"))
        made.deploy("sleep", SLEEP, annotations=to_pairs({"gpu-share": 0.05, "rerun": True}))
        yield made


def test_three_nodes_share_the_calls(cluster):
    with cluster.client() as client, ThreadPoolExecutor(60) as threads:
        found = list(threads.map(lambda _: client.result("sleep", {})["device"], range(300)))
    assert {device.partition("/")[0] for device in found} == set(NODES)


def test_a_pulled_cable_is_suspicion_then_loss_and_the_node_returns(cluster):
    with cluster.client() as client, ThreadPoolExecutor(12) as threads:
        calls = [threads.submit(client.result, "sleep", {"s": 8}) for _ in range(12)]
        time.sleep(1)
        ip("link", "set", "alq-n1-h", "down")
        cluster.wait_for_state("n1", "suspected")
        cluster.wait_for_state("n1", "away")
        assert "n1" not in {client.result("sleep", {})["device"].partition("/")[0] for _ in range(10)}
        ip("link", "set", "alq-n1-h", "up")
        cluster.wait_for_state("n1", "ready")
        assert {call.result()["device"].partition("/")[0] for call in calls} <= set(NODES)


def test_a_cable_that_is_pulled_for_a_moment_costs_nothing(cluster):
    with cluster.client() as client, ThreadPoolExecutor(6) as threads:
        calls = [threads.submit(client.call, "sleep", {"s": 3}) for _ in range(6)]
        time.sleep(1)
        agents = [cluster.nodes[name].log.read_text().count("connected") for name in NODES]
        for name in NODES:
            ip("link", "set", f"alq-{name}-h", "down")
        time.sleep(2)
        for name in NODES:
            ip("link", "set", f"alq-{name}-h", "up")
        assert all(call.result()["response"]["success"] for call in calls)
        assert [cluster.nodes[name].log.read_text().count("connected") for name in NODES] == agents
