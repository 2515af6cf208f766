"""Models in the ONNX format on a whole server, run by ONNX Runtime."""

import hashlib
import json
import runpy

import numpy as np
import pytest
from places import EXAMPLES

from aliquot.kernels.tensors import make_header, read_header
from aliquot.testing.client import from_pairs

pytest.importorskip("onnxruntime")


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
