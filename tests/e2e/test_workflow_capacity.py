"""A workflow is checked at its deployment against its functions and the devices: mistakes are refused."""

import json

from command_line import run_here
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


def test_neighbours_that_fit_one_group_and_branches_that_take_turns_are_warnings(tmp_path):
    heavy = {"StartAt": "H", "States": {"H": task("half", End=True)}}
    fork = {"Type": "Parallel", "Branches": [heavy, {"StartAt": "I", "States": {"I": task("most", End=True)}}]}
    each = {
        "Type": "Map",
        "MaxConcurrency": 3,
        "ItemProcessor": {"StartAt": "J", "States": {"J": task("half", End=True)}},
    }
    with LiveServer(tmp_path / "data", *DEVICES, "2GiB") as server:
        with server.client() as client:
            for name, share in {"half": 0.5, "most": 0.75}.items():
                client.deploy(name, NOOP, annotations=to_pairs({"gpu-share": share, "gpu-memory": "100MiB"}))
            client.deploy("plain", NOOP)
            client.deploy("grouped", NOOP, annotations=to_pairs({"group": "g"}))
            client.deploy("once", NOOP, annotations=to_pairs({"rerun": False}))
        (tmp_path / "flow.json").write_text(json.dumps(chain(task("plain"), task("half"), task("gone"), fork, each)))

        def workflow(*arguments):
            done = run_here("workflow", *arguments, cwd=tmp_path, environment={"HOME": str(tmp_path)})
            assert done.code == 0, done.out + done.err
            return done

        data = ("--data", str(tmp_path / "data"))
        answer = put(server, json.loads((tmp_path / "flow.json").read_text()))
        assert answer.status_code == 200
        told = answer.json()["warnings"]
        assert [line.partition(":")[0] for line in told] == [
            "state 'C', Resource",
            "state 'A', Resource",
            "state 'D', Branches",
            "state 'E', MaxConcurrency",
        ]
        assert "there is no action gone yet" in told[0]
        assert "with 'B' after it, it would fit into one group (plain, half)" in told[1]
        assert "2 tasks with a slice ('H', 'I') may run at once, and 1 of them fit on the devices" in told[2]
        assert "its iterations take turns: 3 tasks with a slice ('J') may run at once, and 2 of them" in told[3]
        deployed = workflow("deploy", "flow.json", *data)
        checked = workflow("check", "flow.json", "--platform", *data)
        for line in told:
            assert f"warning: {line}" in deployed.err
            assert f"warning {line}" in checked.out
        assert "valid, 5 states" in checked.out
        assert workflow("check", "flow.json").out == "valid, 5 states\n"
        # One group has both, two groups are a choice of their owner, and a function that must not run twice is in none.
        for names in (("grouped", "grouped"), ("plain", "once"), ("half", "most")):
            assert "warnings" not in put(server, chain(*map(task, names))).json(), names
        assert "(grouped, plain)" in put(server, chain(task("grouped"), task("plain"))).json()["warnings"][0]
