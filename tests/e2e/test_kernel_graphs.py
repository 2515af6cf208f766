"""Kernel graphs on a whole server with real PoCL: deployment, calls, and what goes wrong in a kernel."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import struct
from threading import Thread

import httpx
import pytest
from places import EXAMPLES

from aliquot.kernels.tensors import make_header, read_header
from aliquot.testing.client import from_pairs
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")

SCALE = """
__kernel void scale(__global const float *x, __global float *t, float factor) {
    int i = get_global_id(0);
    t[i] = x[i] * factor;
}
__kernel void add(__global const float *t, __global float *y) { int i = get_global_id(0); y[i] += t[i]; }
"""
# It runs for ever if the first element of its input is 1, and writes far away if it is 2.
WILD = """
__kernel void quiet(__global const int *x, __global int *y) { y[0] = x[0]; }
__kernel void wild(__global const int *x, __global volatile int *y) {
    while (x[0] == 1) y[0]++;
    if (x[0] == 2) y[(1L << 40)] = 1;
}
"""
ADD_CONSTANT = """
__kernel void add_constant(__global const float *x, __global const float *w, __global float *y) {
    int i = get_global_id(0);
    y[i] = x[i] + w[i];
}
"""
SEARCH = """
__kernel void keep(__global const int *x, __global int *t) { t[get_global_id(0)] = x[0]; }
__kernel void search(__global const int *x, __global const int *t, __global int *y) {
    for (int i = 0; i < 4096; i++) if (t[i] == 0x5ec2e7) y[0]++;
}
"""


def buffer(kind, dtype="f4", shape=(8,), **more):
    return {"kind": kind, "dtype": dtype, "shape": list(shape), **more}


def launch(entry, *arguments, items=8):
    return {"program": "p", "entry": entry, "grid": [items], "block": [1], "arguments": list(arguments)}


def graph(source, buffers, kernels, **more):
    return json.dumps({"form": "opencl", "programs": {"p": {"source": source}}, "buffers": buffers,
                       "kernels": kernels, **more})  # fmt: skip


SCALED = graph(
    SCALE,
    {"x": buffer("input"), "t": buffer("temporary"), "y": buffer("output")},
    [
        launch("scale", {"in": "x"}, {"out": "t"}, {"literal": "factor"}),
        launch("add", {"in": "t"}, {"inout": "y"}),
    ],
    literals={"factor": {"dtype": "f4", "default": 2}},
)
WILD_GRAPH = graph(
    WILD,
    {"x": buffer("input", "i4", [1]), "y": buffer("output", "i4", [1])},
    [
        launch("quiet", {"in": "x"}, {"out": "y"}, items=1),
        launch("wild", {"in": "x"}, {"inout": "y"}, items=1),
    ],
)
ONES = [1.0] * 8


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(
        tmp_path_factory.mktemp("kernels") / "data", "--devices", "host:1", "--device-memory", "40MiB"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with server.client() as made:
        made.deploy("scaled", SCALED, kind="kernel:1")
        made.deploy("wild", WILD_GRAPH, kind="kernel:1", limits={"timeout": 6000})
        yield made


def put(client, name, code, **body):
    return client.put(f"actions/{name}?overwrite=true", json={"exec": {"kind": "kernel:1", "code": code}, **body})


def test_a_graph_is_called_with_json(client):
    record = client.call("scaled", {"inputs": {"x": ONES}})
    assert record["response"]["result"]["outputs"] == {"y": [2.0] * 8}
    notes = from_pairs(record["annotations"])
    assert notes["kernels"]["bytesIn"] == 32
    assert notes["kernels"]["loadTime"] > 0, "the graph was loaded for this call"
    assert notes["kernels"]["bytesZeroed"] == 64
    assert notes["device"].startswith("host-")
    assert notes["deviceSeconds"] > 0
    assert notes["byteSeconds"] >= 0
    again = client.result("scaled", {"inputs": {"x": ONES}, "literals": {"factor": 3}})
    assert again["outputs"] == {"y": [3.0] * 8}, "outputs are zeroed before each call"


def test_numbers_that_json_cannot_hold_come_as_base64(client):
    found = client.result("scaled", {"inputs": {"x": [3e38] * 8}, "literals": {"factor": 3e38}})
    assert list(found["outputs"]["y"]) == ["base64"]


def test_a_graph_is_called_with_a_safetensors_file(client):
    body = make_header({"x": ("f4", [8])}, {"call": '{"literals": {"factor": 5}}'}) + struct.pack("<8f", *range(8))
    kind = {"content-type": "application/x-safetensors"}
    answer = client.post("actions/scaled?blocking=true&result=true", content=body, headers=kind)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-safetensors")
    entry = read_header(answer.content).entries["y"]
    assert struct.unpack("<8f", answer.content[entry.start : entry.end]) == tuple(5.0 * n for n in range(8))
    refused = client.post("actions/scaled?blocking=true", content=body[:-4], headers=kind)
    complaint = f"the file: has {len(body) - 4} bytes; its header says {len(body)}"
    assert (refused.status_code, refused.json()["complaints"]) == (400, [complaint])
    pickle = client.post("actions/scaled?blocking=true", content=b"x", headers={"content-type": "text/plain"})
    assert pickle.status_code == 415


def test_a_call_that_does_not_fit_is_refused_with_every_complaint(client):
    answer = client.post("actions/scaled?blocking=true", json={"inputs": {"x": [1], "z": 1}, "literals": {"f": 1}})
    assert answer.status_code == 400
    assert answer.json()["complaints"] == [
        "input 'x': the value is a list of 1; expected a list of 8",
        "input 'z': no such input; known are x",
        "literal 'f': no such literal; known are factor",
    ]


def test_every_mistake_of_a_graph_is_told_when_it_is_deployed(client):
    wrong = json.loads(SCALED)
    wrong["buffers"]["t"]["dtype"] = "f3"
    wrong["kernels"][0]["grid"] = [0]
    answer = put(client, "wrong", json.dumps(wrong))
    assert answer.status_code == 400
    assert "buffers.t.dtype: is 'f3'" in answer.json()["error"]
    assert "kernels[0].grid" in answer.json()["error"]
    memory = put(
        client,
        "wrong",
        SCALED,
        annotations=[{"key": "gpu-share", "value": 0.5}, {"key": "gpu-memory", "value": "1GiB"}],
    )
    assert "annotation gpu-memory: a kernel graph takes none" in memory.json()["error"]


def test_a_program_that_does_not_compile_is_refused_with_the_log(client):
    answer = put(client, "wrong", SCALED.replace("t[i] = x[i]", "t[i] = z[i]"))
    assert answer.status_code == 400
    assert "use of undeclared identifier 'z'" in answer.json()["error"]


def test_a_constant_pointer_cannot_be_written(client):
    answer = put(client, "wrong", SCALED.replace('{"in": "t"}', '{"inout": "t"}'))
    assert answer.status_code == 400
    assert "kernels[1] add, argument 0 't'" in answer.json()["error"]


def test_a_graph_larger_than_any_device_is_refused_with_the_largest_that_fits(client):
    large = json.loads(SCALED)
    large["buffers"]["t"]["shape"] = [1 << 40]
    answer = put(client, "large", json.dumps(large))
    assert answer.status_code == 400
    assert "the largest that would fit" in answer.json()["error"]


def test_a_kernel_that_writes_out_of_bounds_ends_its_call_alone(client):
    record = client.call("wild", {"inputs": {"x": [2]}})
    assert record["response"]["status"] == "action developer error"
    assert record["response"]["result"]["error"].endswith("It was in kernel 1 (wild), iteration 0.")
    assert client.result("scaled", {"inputs": {"x": ONES}})["outputs"] == {"y": [2.0] * 8}


def test_a_killed_executor_ends_its_call_and_the_next_one_runs(client, server):
    client.deploy("slow", WILD_GRAPH, kind="kernel:1", limits={"timeout": 60_000})
    client.result("slow", {"inputs": {"x": [0]}})
    records = []
    caller = Thread(target=lambda: records.append(client.call("slow", {"inputs": {"x": [1]}})))
    caller.start()

    def kill():
        """Kill the sandbox if it has the call. One that has not read it is replaced, and is killed, too."""
        for row in server.operate("GET", "status")["sandboxes"]:
            if (row["function"], row["state"]) == ("slow", "busy") and row.get("pid"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(row["pid"], signal.SIGKILL)
        return not caller.is_alive()

    wait_until(kill, what="the end of the call whose executor is killed", timeout_s=60, pause_s=0.3)
    assert not records[0]["response"]["success"]
    assert "timed out" not in str(records[0])
    assert client.result("slow", {"inputs": {"x": [0]}})["outputs"] == {"y": [0]}


def executor_pids(server, *names):
    rows = server.operate("GET", "status")["sandboxes"]
    return {row["function"]: row["pid"] for row in rows if row["function"] in names and row.get("pid")}


def test_graphs_of_a_tenant_share_the_process_on_a_device_and_those_of_others_do_not(client, server):
    other_graph = SCALED.replace("y[i] += t[i]", "y[i] += t[i] + 1")
    client.deploy("shifted", other_graph, kind="kernel:1")
    for name, expected in (("scaled", 2.0), ("shifted", 3.0), ("scaled", 2.0)):
        assert client.result(name, {"inputs": {"x": ONES}})["outputs"] == {"y": [expected] * 8}
    pids = executor_pids(server, "scaled", "shifted")
    assert len(pids) == 2
    assert len(set(pids.values())) == 1
    with server.client(server.create_namespace("neighbour")) as neighbour:
        neighbour.deploy("own", SCALED, kind="kernel:1")
        neighbour.result("own", {"inputs": {"x": ONES}})
        assert executor_pids(server, "own")["own"] not in pids.values()
    client.delete("actions/shifted")
    wait_until(lambda: not executor_pids(server, "shifted"), what="the graph leaves its executor")
    assert executor_pids(server, "scaled") == {"scaled": pids["scaled"]}
    assert client.result("scaled", {"inputs": {"x": ONES}})["outputs"] == {"y": [2.0] * 8}


def test_compiled_code_is_kept_and_does_without(client, server):
    client.deploy("kept", SCALED.replace("y[i] += t[i]", "y[i] += t[i] + 4"), kind="kernel:1")
    archives = sorted((server.data / "compiled").glob("*/*"), key=lambda path: path.stat().st_mtime)
    assert archives[-1].read_bytes()[:2] == b"\x1f\x8b"
    archives[-1].write_bytes(b"\x1f\x8bdamaged")
    assert client.result("kept", {"inputs": {"x": ONES}})["outputs"] == {"y": [6.0] * 8}


def test_an_endless_kernel_ends_its_own_call_and_others_of_the_tenant_run_again(client, server):
    """The others are a graph that is resident and waits for its turn, and one that is loaded beside the run."""
    client.deploy("third", SCALED.replace("y[i] += t[i]", "y[i] += t[i] + 2"), kind="kernel:1")
    client.result("wild", {"inputs": {"x": [0]}})
    client.result("scaled", {"inputs": {"x": ONES}})
    before = executor_pids(server, "wild")["wild"]
    ended = {}

    def call(name, x):
        ended[name] = client.call(name, {"inputs": {"x": x}})

    callers = [Thread(target=call, args=("wild", [1]))]
    callers[0].start()
    wait_until(
        lambda: any(
            (row["function"], row["state"]) == ("wild", "busy") for row in server.operate("GET", "status")["sandboxes"]
        ),
        what="the endless kernel runs",
    )
    callers += [Thread(target=call, args=(name, ONES)) for name in ("scaled", "third")]
    for caller in callers[1:]:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert ended["wild"]["response"]["result"]["error"] == (
        "The action exceeded its time limits of 6000 milliseconds. It was in kernel 1 (wild), iteration 0."
    )
    assert ended["scaled"]["response"]["result"]["outputs"] == {"y": [2.0] * 8}
    assert ended["third"]["response"]["result"]["outputs"] == {"y": [4.0] * 8}
    assert executor_pids(server, "scaled")["scaled"] != before
    metrics = httpx.get(f"{server.url}/metrics").text
    figures = dict(re.findall(r"^aliquot_(executor\w*|graph_loads_total) ([\d.e+]+)$", metrics, re.MULTILINE))
    assert float(figures["executor_crashes_total"]) >= 1
    assert float(figures["executor_calls_again_total"]) >= 1
    assert float(figures["executor_graphs"]) >= 2
    assert float(figures["graph_loads_total"]) > float(figures["executor_starts_total"])


def test_a_kernel_that_searches_memory_finds_no_secret_of_another_tenant(client, server):
    searching = graph(
        SEARCH,
        {
            "x": buffer("input", "i4", [1]),
            "t": buffer("temporary", "i4", [4096], zero=False),
            "y": buffer("output", "i4", [1]),
        },
        [
            launch("search", {"in": "x"}, {"in": "t"}, {"inout": "y"}, items=1),
            launch("keep", {"in": "x"}, {"out": "t"}, items=4096),
        ],
    )
    client.deploy("search", searching, kind="kernel:1")
    secret = {"inputs": {"x": [0x5EC2E7]}}
    assert client.result("search", secret)["outputs"] == {"y": [0]}
    assert client.result("search", secret)["outputs"] == {"y": [4096]}, "its own bytes, because it asked for no zeros"
    with server.client(server.create_namespace("other")) as other:
        other.deploy("search", searching, kind="kernel:1")
        assert other.result("search", {"inputs": {"x": [0]}})["outputs"] == {"y": [0]}


def test_a_graph_for_cuda_says_that_there_is_no_driver(client):
    ptx = b".version 7.0\n.visible .entry fill(.param .u64 y) { ret; }\n"
    digest = hashlib.sha256(ptx).hexdigest()
    assert client.put(f"blobs/{digest}", content=ptx).status_code == 200
    document = {
        "form": "cuda",
        "programs": {"p": {"sha256": digest}},
        "buffers": {"y": buffer("output")},
        "kernels": [launch("fill", {"out": "y"})],
    }
    answer = put(client, "for-cuda", json.dumps(document))
    assert answer.status_code == 400
    assert "graphs of form cuda need NVIDIA's driver library" in answer.json()["error"]


def test_constants_that_do_not_fit_together_leave_the_device_and_come_back(client, server):
    """Three graphs with 16 MiB each in one executor, on a device of 40 MiB."""
    buffers = {"x": buffer("input"), "y": buffer("output")}
    kernels = [launch("add_constant", {"in": "x"}, {"in": "w"}, {"out": "y"})]
    for number in range(3):
        weights = struct.pack("<f", number) * (1 << 22)
        digest = hashlib.sha256(weights).hexdigest()
        assert client.put(f"blobs/{digest}", content=weights).status_code == 200
        constant = buffer("const", shape=(1 << 22,), sha256=digest)
        client.deploy(f"heavy{number}", graph(ADD_CONSTANT, buffers | {"w": constant}, kernels), kind="kernel:1")
    records = [client.call(f"heavy{number}", {"inputs": {"x": ONES}}) for _ in range(2) for number in range(3)]
    results = [record["response"]["result"] for record in records]
    assert [result["outputs"]["y"][0] for result in results] == [1.0, 2.0, 3.0] * 2
    again = from_pairs(records[3]["annotations"])
    assert (again["start"], again["kernels"]["kernelMisses"]) == ("swap_in", 0), "its code stayed in the executor"
    assert again["kernels"]["bytesIn"] == 4 * (1 << 22) + 32
    names = [f"heavy{number}" for number in range(3)]
    assert len(set(executor_pids(server, *names).values())) == 1


def test_a_solver_ends_by_itself_on_the_platform(client):
    jacobi = (EXAMPLES / "kernels" / "jacobi.json").read_text()
    client.deploy("jacobi", jacobi, kind="kernel:1")
    result = client.result("jacobi", {"inputs": {"b": [1.0] * 32}})
    assert 1 < result["kernels"]["iterations"] < json.loads(jacobi)["iterations"]
    u = result["outputs"]["u"]
    left = [2 * u[i] - (u[i - 1] if i else 0) - (u[i + 1] if i < 31 else 0) for i in range(32)]
    assert left == pytest.approx([1.0] * 32, abs=0.01)


def test_the_same_graph_put_again_is_not_tried_out_again(client):
    before = client.get("actions/scaled").json()
    assert put(client, "scaled", SCALED).status_code == 200
    assert client.get("actions/scaled").json()["exec"] == before["exec"]


def test_a_graph_without_a_share_of_a_device_runs_on_the_processors(client):
    client.deploy("on-cpu", SCALED, kind="kernel:1", annotations=[{"key": "gpu-share", "value": 0}])
    record = client.call("on-cpu", {"inputs": {"x": ONES}})
    assert record["response"]["result"]["outputs"] == {"y": [2.0] * 8}
    assert from_pairs(record["annotations"])["device"] == "cpu"
