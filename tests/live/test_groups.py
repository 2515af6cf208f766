"""Functions of a group on a real server: one sandbox, values passed as they are, everything else apart."""

import sqlite3

import pytest

from aliquot.testing.server import LiveServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    data = tmp_path_factory.mktemp("groups") / "data"
    with LiveServer(data, "--devices", "host:1") as server:
        yield server
    journal = data / "aliquot.db"
    assert journal.exists()
    assert sqlite3.connect(journal).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def grouped(group, **more):
    return {"annotations": [{"key": "group", "value": group}], **more}


def invoke(server, name, args=None, **query):
    with server.client() as client:
        answer = client.post(f"actions/{name}", params={"blocking": "true", **query}, json=args or {})
        return answer.json()


def record(server, activation_id):
    with server.client() as client:
        return client.get(f"activations/{activation_id}").raise_for_status().json()


def annotation(record, key):
    return next(pair["value"] for pair in record["annotations"] if pair["key"] == key)


def test_functions_of_a_group_share_a_process_and_nothing_else(server):
    code = """
import builtins, os
count = 0
builtins.token = getattr(builtins, "token", os.urandom(8).hex())
def main(args):
    global count
    count += 1
    print("printed by", os.environ["__OW_ACTION_NAME"])
    os.environ["LEFT"] = os.environ.get("LEFT", "") + os.environ["MINE"]
    return {"process": builtins.token, "count": count, "left": os.environ["LEFT"], "name": os.environ["__OW_ACTION_NAME"]}
"""
    for name in ("one", "two"):
        mine = [{"key": "MINE", "value": name, "init": True}]
        server.deploy(name, code, **grouped("pair", parameters=mine))
    first, second, again = (invoke(server, name) for name in ("one", "two", "one"))
    results = [each["response"]["result"] for each in (first, second, again)]
    assert len({result["process"] for result in results}) == 1
    assert [result["count"] for result in results] == [1, 1, 2]
    assert [result["left"] for result in results] == ["one", "two", "oneone"]
    assert [result["name"].rpartition("/")[2] for result in results] == ["one", "two", "one"]
    logs = [record(server, each["activationId"])["logs"] for each in (first, second, again)]
    assert [line.partition("printed by ")[2].rpartition("/")[2] for lines in logs for line in lines] == [
        "one",
        "two",
        "one",
    ]


def test_a_sequence_of_a_group_hands_on_the_very_object(server):
    server.deploy(
        "give",
        """
import builtins
def main(args):
    print("give")
    value = b"x" * 200_000
    builtins.seen = [id(value)]
    return {"value": value, "more": [1, 2, object()]}
""",
        **grouped("chain"),
    )
    server.deploy(
        "pass",
        """
import builtins
def main(args):
    print("pass")
    builtins.seen.append(id(args["value"]))
    args["extra"] = args["default"]
    return args
""",
        **grouped("chain", parameters=[{"key": "default", "value": 7}]),
    )
    server.deploy(
        "take",
        """
import builtins
def main(args):
    print("take")
    builtins.seen.append(id(args["value"]))
    return {"same": len(set(builtins.seen)) == 1, "count": len(builtins.seen), "extra": args["extra"]}
""",
        **grouped("chain"),
    )
    names = [f"/_/{name}" for name in ("give", "pass", "take")]
    with server.client() as client:
        body = {"exec": {"kind": "sequence", "components": names}}
        client.put("actions/all", params={"overwrite": "true"}, json=body).raise_for_status()
    whole = invoke(server, "all")
    assert whole["response"]["result"] == {"same": True, "count": 3, "extra": 7}
    steps = [record(server, each) for each in whole["logs"]]
    assert [step["name"] for step in steps] == ["give", "pass", "take"]
    assert [step["logs"][0].rpartition(" ")[2] for step in steps] == ["give", "pass", "take"]
    assert all(step["cause"] == whole["activationId"] for step in steps)
    assert [annotation(step, "causedBy") for step in steps] == ["sequence"] * 3
    assert steps[0]["response"]["result"] == {
        "value": {"type": "bytes", "bytes": 200_000}, "more": [1, 2, {"type": "object"}],
    }  # fmt: skip
