"""A workflow is asked at its deployment whether a device could hold each of its functions."""

import json

from live_workflows import chain, task

from aliquot.testing.client import to_pairs
from aliquot.testing.server import LiveServer

DEVICES = ("--devices", "host:1", "--device-memory")
NOOP = "def main(args): return args"


def put(server, definition):
    with server.client() as client:
        body = {"exec": {"kind": "workflow", "code": json.dumps(definition)}}
        return client.put("actions/flow", params={"overwrite": "true"}, json=body)


def test_a_state_whose_slice_no_device_holds_any_more_is_refused_by_name_with_the_largest_that_fits(tmp_path):
    flow = chain(task("small"), task("large"), task("unknown"))
    with LiveServer(tmp_path / "data", *DEVICES, "2GiB") as server:
        with server.client() as client:
            for name, memory in {"small": "100MiB", "large": "1500MiB"}.items():
                client.deploy(name, NOOP, annotations=to_pairs({"gpu-share": 0.5, "gpu-memory": memory}))
        assert put(server, flow).status_code == 200
    with LiveServer(tmp_path / "data", *DEVICES, "1GiB") as server:
        answer = put(server, flow)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert "state 'B', Resource: the function large cannot run here" in error
        assert "needs 1572864000 bytes of 1073741824" in error
        assert "the largest that would fit is a share of 1 with 1073741824 bytes" in error
        assert "'A'" not in error
        assert put(server, chain(task("small"))).status_code == 200
