"""Objects and blobs on a whole server: names, digests, quotas, restarts, and constants of kernel graphs."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest
from kernel_graphs import gemm_chain

from aliquot.testing.client import CallError, from_pairs
from aliquot.testing.server import LiveServer

LIMITS = ("--limit", "object_bytes=200000", "--limit", "objects_per_namespace_bytes=500000")
needs_ld = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("objects") / "data", "--devices", "host:1", *LIMITS) as running:
        yield running


@pytest.fixture
def client(server):
    with server.client(server.create_namespace(f"tenant-{os.urandom(4).hex()}")) as made:
        yield made


def test_an_object_is_written_read_listed_and_deleted(client):
    data = os.urandom(150_000)
    stored = client.put("objects/models/net.bin", content=data).json()
    assert (stored["key"], stored["sha256"], stored["size"]) == ("models/net.bin", digest(data), len(data))
    answer = client.get("objects/models/net.bin")
    assert (answer.content, answer.headers["etag"]) == (data, f'"{digest(data)}"')
    assert client.get("objects/models/net.bin", headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    client.put("objects/other", content=b"").raise_for_status()
    assert [one["key"] for one in client.get("objects").json()] == ["models/net.bin", "other"]
    assert [one["key"] for one in client.get("objects?prefix=models/").json()] == ["models/net.bin"]
    assert client.get("objects/other").content == b""
    assert client.delete("objects/models/net.bin").status_code == 200
    assert client.get("objects/models/net.bin").status_code == 404
    assert client.put("objects/../x", content=b"x").status_code in {400, 404}


def test_a_blob_is_stored_only_under_its_own_digest(client):
    data = b"some bytes"
    assert client.head(f"blobs/{digest(data)}").status_code == 404
    wrong = client.put(f"blobs/{digest(b'others')}", content=data)
    assert (wrong.status_code, digest(data) in wrong.json()["error"]) == (400, True)
    assert client.get(f"blobs/{digest(b'others')}").status_code == 404
    for _ in range(2):
        assert client.put(f"blobs/{digest(data)}", content=data).json() == {"sha256": digest(data), "size": 10}
    assert client.get(f"blobs/{digest(data)}").content == data
    assert client.get("blobs/abc").status_code == 400


def test_nothing_is_shared_between_namespaces_not_even_that_it_exists(client, server):
    data = b"a secret of one tenant"
    client.put(f"blobs/{digest(data)}", content=data).raise_for_status()
    client.put("objects/mine", content=data).raise_for_status()
    with server.client() as other:
        assert other.head(f"blobs/{digest(data)}").status_code == 404
        assert other.get("objects/mine").status_code == 404
        name = client.get(client.base_url.join("/api/v1/namespaces")).json()[0]
        assert other.get(other.base_url.join(f"/api/v1/namespaces/{name}/objects/mine")).status_code == 403


def test_more_than_a_namespace_may_store_is_refused_and_leaves_nothing(client, server):
    large = client.put("objects/large", content=os.urandom(200_001))
    assert (large.status_code, "object_bytes" in large.json()["error"]) == (507, True)
    for number in range(3):
        last = client.put(f"objects/{number}", content=os.urandom(190_000))
    assert (last.status_code, "objects_per_namespace_bytes" in last.json()["error"]) == (507, True)
    assert [one["key"] for one in client.get("objects").json()] == ["0", "1"]
    assert list((server.data / "objects" / "incoming").iterdir()) == []


def test_objects_survive_a_killed_server_and_half_files_do_not(tmp_path):
    server = LiveServer(tmp_path / "data").start()
    try:
        with server.client() as client:
            client.put("objects/kept", content=b"kept").raise_for_status()
        (tmp_path / "data" / "objects" / "incoming" / "half").write_bytes(b"ha")
        server.kill()
        server.start()
        with server.client(server.create_namespace("late")) as late:
            assert late.get("objects/kept").status_code == 404
        with server.client() as client:
            assert client.get("objects/kept").content == b"kept"
        assert list((tmp_path / "data" / "objects" / "incoming").iterdir()) == []
    finally:
        server.stop()


@needs_ld
def test_a_graph_runs_with_constants_from_blobs_with_the_counters_of_a_chain(client):
    document, constants = gemm_chain(64)
    code = json.dumps(document)
    with pytest.raises(CallError, match="is not stored; put it under blobs/"):
        client.deploy("chain", code, kind="kernel:1")
    for name, array in constants.items():
        client.put(f"blobs/{name}", content=array.tobytes()).raise_for_status()
    client.deploy("chain", code, kind="kernel:1")
    x = np.eye(64, dtype="f4")
    weights = [array for array in constants.values() if array.shape == (64, 64)]
    records = [client.call("chain", {"inputs": {"x": x.tolist()}}) for _ in range(2)]
    assert np.allclose(records[0]["response"]["result"]["outputs"]["y"], np.linalg.multi_dot(weights), rtol=1e-3)
    cold, warm = (from_pairs(record["annotations"])["kernels"] for record in records)
    assert (cold["misses"], cold["hits"], warm["misses"], warm["hits"]) == (13, 3, 5, 11)
    assert (cold["bytesIn"], warm["bytesIn"]) == (5 * 64 * 64 * 4 + 4 * 32, 64 * 64 * 4)


@needs_ld
def test_a_damaged_constant_ends_the_call_and_is_named(client, server):
    document, constants = gemm_chain(16, 1)
    for name, array in constants.items():
        client.put(f"blobs/{name}", content=array.tobytes()).raise_for_status()
    client.deploy("chain", json.dumps(document), kind="kernel:1")
    name = next(iter(constants))
    (path,) = (server.data / "objects").glob(f"*/{name}")
    path.write_bytes(bytes(path.stat().st_size))
    record = client.call("chain", {"inputs": {"x": np.eye(16).tolist()}})
    assert f"the constant 'w0' ({name}) is damaged or gone" in record["response"]["result"]["error"]
