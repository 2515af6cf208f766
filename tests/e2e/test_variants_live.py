"""Functions with a version for processors on a real server: the platform chooses for each call."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.client import from_pairs, to_pairs
from aliquot.testing.server import LiveServer

CODE = """
import os
import time

def main(args):
    time.sleep(0.1)
    return {"by": "gpu", "on": os.environ["ALIQUOT_DEVICE"], "share": os.environ["ALIQUOT_SHARE"]}

def slow(args):
    time.sleep(0.15)
    return {"by": "cpu", "on": os.environ["ALIQUOT_DEVICE"], "share": os.environ["ALIQUOT_SHARE"]}
"""
APP = """
import os
import aliquot

app = aliquot.App("versions")

@app.function(gpu=0.5)
def where(x):
    return "gpu", x, os.environ["ALIQUOT_DEVICE"]

@where.variant("cpu")
def where_on_cpu(x):
    return "cpu", x, os.environ["ALIQUOT_DEVICE"]

if __name__ == "__main__":
    import json
    print(json.dumps([where.remote(1), where.options(deadline="30s").remote(2), [where.name]]))
"""
ON_GPU = {"by": "gpu", "on": "host-1", "share": "1"}
ON_CPU = {"by": "cpu", "on": "cpu", "share": "0"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("live") / "data", "--devices", "host:1") as server:
        server.deploy("f", CODE, annotations=to_pairs({"gpu-share": 1, "cpu": "slow"}))
        yield server
    assert not replay_file(server.data).differences


def call(server, **headers):
    with server.client() as client:
        answer = client.post("actions/f", params={"blocking": "true"}, json={}, headers=headers)
    assert answer.status_code == 200, answer.text
    record = answer.json()
    return record["response"]["result"], from_pairs(record["annotations"]).get("objective")


def test_a_plain_call_has_the_accelerator_and_many_at_once_have_both(server):
    assert call(server)[0] == ON_GPU
    with ThreadPoolExecutor(8) as threads:
        results = [result for result, _ in threads.map(lambda _: call(server), range(16))]
    assert all(result in (ON_GPU, ON_CPU) for result in results)
    assert ON_CPU in results


def test_a_promised_call_has_the_cheapest_device_that_is_in_time(server):
    for _ in range(10):  # so that run times of both kinds are known
        call(server, **{"x-aliquot-deadline-ms": "20000"})
    result, objective = call(server, **{"x-aliquot-deadline-ms": "20000"})
    assert (result, objective["promised"]) == (ON_CPU, True)


def test_the_versions_of_an_app_are_deployed_as_one_function(server, tmp_path):
    file = tmp_path / "versions.py"
    file.write_text(APP)
    environment = {"ALIQUOT_URL": server.url, "ALIQUOT_KEY": server.key, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain, limited, here = json.loads(done.stdout)
    assert plain == ["gpu", 1, "host-1"]
    assert limited in (["gpu", 2, "host-1"], ["cpu", 2, "cpu"])
    assert here == ["where"]


def test_an_annotation_that_does_not_fit_is_refused(server):
    with server.client() as client:
        for annotations, complaint in (
            ({"cpu": True}, "annotation cpu: it is for a function with gpu-share of at most 1"),
            ({"cpu": 3, "gpu-share": 0.5}, "annotation cpu: it takes true, false, or the name of"),
        ):
            body = {"exec": {"kind": "python:3.11", "code": CODE}, "annotations": to_pairs(annotations)}
            answer = client.put("actions/g", json=body)
            assert answer.status_code == 400
            assert complaint in answer.json()["error"]
