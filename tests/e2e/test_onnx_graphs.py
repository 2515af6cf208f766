"""Models in the ONNX format and graphs of the SDK on a whole server, with ONNX Runtime and PoCL."""

import hashlib
import json
import runpy
import shutil

import numpy as np
import pytest
from command_line import run_here
from places import EXAMPLES

from aliquot.kernels.tensors import make_header, read_header
from aliquot.live.usage.bill import bill_lines
from aliquot.sdk.errors import UsageError
from aliquot.testing.client import from_pairs
from aliquot.testing.waiting import wait_until

pytest.importorskip("onnxruntime")
HALF = [{"key": "gpu-share", "value": 0.5}, {"key": "gpu-memory", "value": "64MiB"}]
needs_ld = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLES / "kernels" / "residual_cnn.py"))


@pytest.fixture(scope="module")
def client(shared_server):
    with shared_server.client() as made:
        yield made


def put_model(client, name, data, **fields):
    digest = hashlib.sha256(data).hexdigest()
    assert client.put(f"blobs/{digest}", content=data).status_code < 300
    code = json.dumps({"form": "onnx", "model": {"sha256": digest}, **fields})
    return client.put(f"actions/{name}?overwrite=true", json={"exec": {"kind": "kernel:1", "code": code}})


def test_a_model_is_deployed_and_called(client, example):
    data = example["make_model"]().SerializeToString()
    answer = put_model(client, "cnn", data, shapes={"image": [2, 3, 16, 16]})
    assert answer.status_code == 200, answer.text
    version = answer.json()["version"]
    assert put_model(client, "cnn", data, shapes={"image": [2, 3, 16, 16]}).json()["exec"] == answer.json()["exec"]
    images = np.random.default_rng(1).random((2, 3, 16, 16), np.float32)
    body = make_header({"image": ("f4", images.shape)}) + images.tobytes()
    kind = {"content-type": "application/x-safetensors"}
    found = client.post("actions/cnn?blocking=true&result=true", content=body, headers=kind)
    assert found.status_code == 200, found.text
    entry = read_header(found.content).entries["classes"]
    classes = np.frombuffer(found.content[entry.start : entry.end], "f4").reshape(2, 10)
    assert np.allclose(classes, example["classes_with_numpy"](images), atol=1e-5)
    assert version
    record = client.call("cnn", {"inputs": {"image": images.tolist()}})
    assert np.allclose(record["response"]["result"]["outputs"]["classes"], classes, atol=1e-5)
    counted = from_pairs(record["annotations"])["kernels"]
    assert (counted["bytesIn"], counted["bytesOut"], counted["kernelMisses"]) == (images.nbytes, classes.nbytes, 0)


def test_a_model_that_cannot_run_is_refused_with_the_reason(client, example):
    model = example["make_model"]()
    data = model.SerializeToString()
    missing = client.put(
        "actions/none", json={"exec": {"kind": "kernel:1", "code": json.dumps(
            {"form": "onnx", "model": {"sha256": "0" * 64}, "shapes": {}})}}
    )  # fmt: skip
    assert (missing.status_code, "is not stored" in missing.json()["error"]) == (400, True)
    wrong = put_model(client, "none", data, shapes={"image": [2, 1, 16, 16]})
    assert "shapes.image: is [2, 1, 16, 16]; the model takes [batch, 3, 16, 16]" in wrong.json()["error"]
    model.graph.node[0].op_type = "NoSuchOperator"
    unknown = put_model(client, "none", model.SerializeToString(), shapes={"image": [2, 3, 16, 16]})
    assert unknown.status_code == 400
    assert "NoSuchOperator" in unknown.json()["error"]


def test_a_layout_that_differs_from_the_file_is_refused(client, example):
    data = example["make_model"]().SerializeToString()
    code = put_model(client, "cnn", data, shapes={"image": [2, 3, 16, 16]}).json()["exec"]["code"]
    lying = json.loads(code)
    lying["programs"]["model"]["weightBytes"] = 1
    answer = client.put("actions/lie", json={"exec": {"kind": "kernel:1", "code": json.dumps(lying)}})
    assert answer.status_code == 400
    assert "programs.model: differs from what its file says" in answer.json()["error"]


def test_functions_and_graphs_are_billed_for_their_part_of_a_device(client, shared_server, example, tmp_path):
    put_model(client, "billed", example["make_model"]().SerializeToString(), shapes={"image": [1, 3, 16, 16]})
    client.deploy("half", "def main(args): return {}", annotations=HALF)
    client.deploy("plain", "def main(args): return {}")
    graph = client.call("billed", {"inputs": {"image": np.zeros((1, 3, 16, 16)).tolist()}})
    notes = {name: from_pairs(client.call(name, {})["annotations"]) for name in ("half", "plain")}
    assert notes["half"]["deviceSeconds"] == pytest.approx(notes["half"]["deviceTime"] / 2000, rel=0.01, abs=1e-5)
    assert "byteSeconds" in notes["half"]
    assert "deviceSeconds" not in notes["plain"]
    tenant = graph["namespace"]

    def lines():
        return {line.action: line for line in bill_lines(shared_server.data, 0, by_day=False) if line.tenant == tenant}

    billed = wait_until(lambda: set(found := lines()) >= {"billed", "half", "plain"} and found, what="the records")
    assert [billed[name].calls for name in ("billed", "half", "plain")] == [1, 1, 1]
    assert billed["half"].device_seconds == notes["half"]["deviceSeconds"]
    assert billed["plain"].device_seconds == 0
    assert billed["billed"].byte_seconds > 0
    arguments = ("usage", "--bill", f"/{tenant}/half", "--data", str(shared_server.data), "--json")
    (line,) = json.loads(run_here(*arguments, cwd=tmp_path, environment={}).out)
    assert (line["calls"], line["deviceSeconds"]) == (1, notes["half"]["deviceSeconds"])


@needs_ld
def test_a_graph_of_an_app_deploys_itself_and_its_constants(shared_server, monkeypatch):
    monkeypatch.setenv("ALIQUOT_URL", shared_server.url)
    monkeypatch.setenv("ALIQUOT_KEY", shared_server.key)
    example = runpy.run_path(str(EXAMPLES / "kernels" / "gemm_chain.py"))
    chain = example["chain"]
    given = [np.random.default_rng(seed).standard_normal((128, 128)).astype("f4") for seed in range(3)]
    for x, found in zip(given, chain.map([{"x": x} for x in given]), strict=True):
        assert np.allclose(found["y"], example["chain_with_numpy"](x), atol=1e-4)
    with pytest.raises(UsageError, match="input 'x' is missing"):
        chain.remote()
    handle = chain.spawn(x=given[0])
    assert np.allclose(chain.handle(handle.id).get(30)["y"], chain(x=given[0])["y"], atol=1e-4)
    assert [one.changed for one in chain.app.deploy()] == [False]
    kept = chain.remote(x=given[0], outputs={"y": "chains/first"})
    assert kept == {"y": {"key": "chains/first"}}
    assert np.allclose(chain.remote(x=kept["y"])["y"], chain(x=chain(x=given[0])["y"])["y"], atol=1e-4)
