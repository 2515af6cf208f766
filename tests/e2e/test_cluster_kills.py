"""Agents are killed under load: every accepted call ends once, and none runs twice that may not.

Each run says that it has begun by a call of another action, which runs on the head. `make test` kills a few times,
`make test-long` sets ALIQUOT_KILLS to 50.
"""

import os
import signal
import threading
from collections import Counter
from random import Random

import pytest
from awaiting import wait_for_record

from aliquot.testing.client import to_pairs
from aliquot.testing.cluster import LiveCluster
from aliquot.testing.waiting import wait_until

KILLS = min(50, int(os.environ.get("ALIQUOT_KILLS", "3")))
WORK = """
import base64, json, os, time, urllib.request

def main(args):
    key = base64.b64encode(os.environ["__OW_API_KEY"].encode()).decode()
    request = urllib.request.Request(
        os.environ["__OW_API_HOST"] + "/api/v1/namespaces/_/actions/begun?blocking=true",
        json.dumps({"n": args["n"]}).encode(),
        {"Authorization": "Basic " + key, "Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).read()
    time.sleep(args["s"])
    return {"n": args["n"]}
"""
LOST = "was lost while it ran"


class Load:
    """Accepted calls of two functions, one of which may run again, until it is told to stop."""

    def __init__(self, cluster):
        self.accepted = {}  # activation id: number of the call
        self._cluster = cluster
        self._stop = threading.Event()
        self._random = Random(22)
        self._thread = threading.Thread(target=self._call)
        self._thread.start()

    def _call(self):
        number = 0
        with self._cluster.client() as client:
            while not self._stop.wait(0.05):
                name = ("once", "often")[number % 2]
                answer = client.post(f"actions/{name}", json={"n": number, "s": self._random.uniform(0, 0.3)})
                self.accepted[answer.json()["activationId"]] = number
                number += 1

    def stop(self):
        self._stop.set()
        self._thread.join()


@pytest.fixture
def cluster(tmp_path):
    with LiveCluster(tmp_path / "head", "--devices", "host:0") as made:
        for name in ("n1", "n2"):
            made.add_node(name)
        made.deploy("begun", "def main(args):\n    return args\n")
        for name, rerun in (("once", 0), ("often", 10)):
            needs = {"gpu-share": 0.05, "provide-api-key": True, "rerun": rerun}
            made.deploy(name, WORK, annotations=to_pairs(needs))
        yield made


def test_no_accepted_call_is_lost_or_runs_twice_when_agents_are_killed(cluster):
    random, load = Random(KILLS), Load(cluster)
    for _ in range(KILLS):
        name = random.choice(["n1", "n2"])
        enough = len(load.accepted) + 10
        wait_until(lambda: len(load.accepted), enough.__lt__, what="calls")
        cluster.wait_for_state(name, "ready")
        cluster.nodes[name].signal_agent(signal.SIGKILL)
    load.stop()
    with cluster.client() as client:
        ends = {number: wait_for_record(client, call) for call, number in load.accepted.items()}
        begun = Counter(
            record["response"]["result"]["n"]
            for skip in range(0, 10_000, 200)
            for record in client.get(
                "activations", params={"name": "begun", "limit": 200, "skip": skip, "docs": True}
            ).json()
        )
    assert len(ends) == len(load.accepted)
    for number, record in ends.items():
        response = record["response"]
        if number % 2 == 0:
            assert begun[number] <= 1, f"call {number} began {begun[number]} times"
            assert response["success"] or LOST in response["result"]["error"], response
        else:
            assert response["success"], response
            assert begun[number] >= 1
    assert any(not record["response"]["success"] for record in ends.values()) or KILLS < 10
