"""Objects as inputs and outputs of kernel graphs, on a whole server with real PoCL."""

import json
import shutil
import struct
from threading import Thread

import pytest
from test_kernel_graphs import ONES, SCALED, WILD, buffer, graph, launch

from aliquot.kernels.tensors import make_header
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")

THREES = struct.pack("<8f", *[3.0] * 8)
ENDLESS = graph(
    WILD,
    {"x": buffer("input", "i4", [1]), "y": buffer("output", "i4", [1])},
    [
        launch("quiet", {"in": "x"}, {"out": "y"}, items=1),
        launch("wild", {"in": "x"}, {"inout": "y"}, items=1),
    ],
)
LIMITS = ("--limit", "objects_per_namespace_bytes=1100")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("objects") / "data", "--devices", "host:1", *LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with server.client() as made:
        made.deploy("scaled", SCALED, kind="kernel:1", annotations=[{"key": "rerun", "value": 2}])
        yield made


def put_object(client, key, data=THREES):
    assert client.put(f"objects/{key}", content=data).status_code == 200


def get_object(client, key):
    answer = client.get(f"objects/{key}")
    return struct.unpack(f"<{len(answer.content) // 4}f", answer.content) if answer.status_code == 200 else None


def test_inputs_and_outputs_are_objects(client):
    put_object(client, "in/threes")
    body = {"inputs": {"x": {"key": "in/threes"}}, "outputs": {"y": {"key": "out/sixes"}}}
    result = client.result("scaled", body)
    assert result["outputs"] == {"y": {"key": "out/sixes"}}
    assert result["kernels"]["bytesIn"] == 32
    assert get_object(client, "out/sixes") == (6.0,) * 8
    chained = client.result("scaled", {"inputs": {"x": {"key": "out/sixes"}}})
    assert chained["outputs"] == {"y": [12.0] * 8}


def test_a_safetensors_file_names_objects_in_its_metadata(client):
    put_object(client, "in/threes")
    call = json.dumps({"inputs": {"x": {"key": "in/threes"}}, "outputs": {"y": {"key": "out/file"}}})
    kind = {"content-type": "application/x-safetensors"}
    answer = client.post("actions/scaled?blocking=true", content=make_header({}, {"call": call}), headers=kind)
    assert answer.status_code == 200, answer.text
    assert get_object(client, "out/file") == (6.0,) * 8


def test_what_is_wrong_with_objects_is_told(client):
    missing = client.post("actions/scaled?blocking=true", json={"inputs": {"x": {"key": "nothing"}}})
    assert (missing.status_code, missing.json()["error"]) == (
        410,
        "The call names an object that is not there: 'nothing'.",
    )
    put_object(client, "short", b"1234")
    short = client.post("actions/scaled?blocking=true", json={"inputs": {"x": {"key": "short"}}})
    assert short.status_code == 400
    assert short.json()["complaints"] == ["input 'x': the object 'short' has 4 bytes; f4[8] takes 32"]


def test_outputs_of_a_call_that_nobody_waits_for_are_kept_as_objects(client):
    spawned = client.post("actions/scaled", json={"inputs": {"x": ONES}}).json()["activationId"]
    wait_until(
        lambda: client.get(f"activations/{spawned}").status_code == 200, what="the record of the call", timeout_s=60
    )
    record = client.get(f"activations/{spawned}").json()
    key = f"calls/{spawned}/y"
    assert record["response"]["result"]["outputs"] == {"y": {"key": key}}
    assert get_object(client, key) == (2.0,) * 8
    (listed,) = client.get(f"objects?prefix=calls/{spawned}").json()
    assert 86_000_000 < listed["expires"] - listed["updated"] <= 86_400_000


def test_an_output_that_stays_is_found_on_the_device_and_written_behind(client):
    body = {"inputs": {"x": ONES}, "outputs": {"y": {"key": "out/stays", "stay": True}}}
    first = client.result("scaled", body)
    assert first["outputs"] == {"y": {"key": "out/stays"}}
    assert (first["kernels"]["bytesIn"], first["kernels"]["bytesOut"]) == (32, 0)
    following = {"inputs": {"x": {"key": "out/stays"}}}
    found = client.result("scaled", following)
    assert found["outputs"] == {"y": [4.0] * 8}
    assert found["kernels"]["bytesIn"] == 0
    assert found["kernels"]["misses"] == first["kernels"]["misses"] - 1
    assert get_object(client, "out/stays") == (2.0,) * 8, "a request for the object waits until it is written"
    assert client.result("scaled", following)["kernels"]["bytesIn"] == 0, "it is still on the device"
    client.deploy("on-cpu", SCALED, kind="kernel:1", annotations=[{"key": "gpu-share", "value": 0}])
    elsewhere = client.result("on-cpu", following)
    assert (elsewhere["outputs"], elsewhere["kernels"]["bytesIn"]) == ({"y": [4.0] * 8}, 32)
    put_object(client, "out/stays")
    replaced = client.result("scaled", following)
    assert (replaced["outputs"], replaced["kernels"]["bytesIn"]) == ({"y": [6.0] * 8}, 32)


def test_a_call_that_waits_has_the_version_of_its_acceptance(client, server):
    """It waits behind an endless kernel of the same executor. Meanwhile its object is replaced and deleted."""
    client.deploy("endless", ENDLESS, kind="kernel:1", limits={"timeout": 3000})
    client.result("endless", {"inputs": {"x": [0]}})
    put_object(client, "replaced")
    ended = {}

    def call(name, x):
        ended[name] = client.call(name, {"inputs": {"x": x}})

    callers = [Thread(target=call, args=("endless", [1])), Thread(target=call, args=("scaled", {"key": "replaced"}))]
    for caller, name in zip(callers, ("endless", "scaled"), strict=True):
        caller.start()
        wait_until(
            lambda name=name: any(
                (row["function"], row["state"]) == (name, "busy")
                for row in server.operate("GET", "status")["sandboxes"]
            ),
            what=f"{name} runs or waits for its turn",
        )
    put_object(client, "replaced", bytes(32))
    client.delete("objects/replaced")
    for caller in callers:
        caller.join(60)
    assert not ended["endless"]["response"]["success"]
    assert ended["scaled"]["response"]["result"]["outputs"] == {"y": [6.0] * 8}


def test_a_call_whose_outputs_have_no_room_is_refused(client):
    outputs = {"inputs": {"x": ONES}, "outputs": {"y": {"key": "y"}}}
    stored = (client.put("objects/full", content=bytes([1]) * size).status_code for size in range(1100, 0, -10))
    assert 200 in stored, "so that less than 10 bytes are left"
    full = client.post("actions/scaled?blocking=true", json=outputs)
    assert full.status_code == 507
    assert "--limit objects_per_namespace_bytes" in full.json()["error"]
    assert get_object(client, "y") is None


def test_a_sequence_of_graphs_hands_arrays_on_without_leaving_the_device(client):
    """Outputs become the inputs of equal names. Here the second graph has the input `y` and the output `z`."""
    second = SCALED.replace('"y"', '"z"').replace('"x"', '"y"')
    client.deploy("second", second, kind="kernel:1")
    code = {"exec": {"kind": "sequence", "components": ["/_/scaled", "/_/second"]}}
    assert client.put("actions/both", json=code).status_code == 200
    record = client.call("both", {"inputs": {"x": ONES}})
    result = record["response"]["result"]
    assert result["outputs"] == {"z": [4.0] * 8}
    assert (result["kernels"]["bytesIn"], result["kernels"]["bytesOut"]) == (0, 32)
    assert client.get("objects?prefix=sequences").json() == [], "nothing is stored"
    first = client.get(f"activations/{record['logs'][0]}").json()
    assert first["response"]["result"]["kernels"]["bytesOut"] == 0


def test_objects_are_looked_up_again_after_a_crash_and_checked_for_damage(tmp_path):
    """One queued call finds its object on the next server, the other's was deleted, and a third one's is damaged."""
    server = LiveServer(tmp_path / "data", "--devices", "host:1").start()
    try:
        with server.client() as client:
            once = [{"key": "rerun", "value": 0}]  # the next server does not run it again
            client.deploy("endless", ENDLESS, kind="kernel:1", limits={"timeout": 30_000}, annotations=once)
            client.deploy("scaled", SCALED, kind="kernel:1")
            for number, name in enumerate(("kept", "deleted", "damaged")):
                put_object(client, name, struct.pack("<8f", *[float(number)] * 8))
            client.post("actions/endless", json={"inputs": {"x": [1]}})
            wait_until(
                lambda: any(row["state"] == "busy" for row in server.operate("GET", "status")["sandboxes"]),
                what="the endless kernel runs",
            )
            bodies = [{"inputs": {"x": {"key": name}}} for name in ("kept", "deleted", "damaged")]
            calls = [client.post("actions/scaled", json=body).json()["activationId"] for body in bodies]
            client.delete("objects/deleted")
            digest = next(one["sha256"] for one in client.get("objects").json() if one["key"] == "damaged")
        server.kill()
        (blob,) = (tmp_path / "data" / "objects").glob(f"*/{digest}")
        blob.write_bytes(bytes(32))
        server.start()
        with server.client() as client:

            def records():
                found = [client.get(f"activations/{call}") for call in calls]
                return [answer.json()["response"]["result"] for answer in found if answer.status_code == 200]

            kept, deleted, damaged = wait_until(records, lambda found: len(found) == 3, what="records", timeout_s=60)
            assert kept["outputs"] == {"y": {"key": f"calls/{calls[0]}/y"}}
            assert deleted["error"]["complaints"] == ["The call names an object that is not there: 'deleted'."]
            assert damaged["error"] == "the object 'damaged' is damaged or gone from the disk; put it again"
    finally:
        server.stop()
