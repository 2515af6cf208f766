"""Functions of a group on a real server: one sandbox, values passed as they are, everything else apart."""

import base64
import io
import json
import threading
import zipfile

import httpx
import pytest
from awaiting import wait_for_record

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.runtime.summary import summarize
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

MARKED = 'import builtins, os\nbuiltins.token = getattr(builtins, "token", os.urandom(8).hex())\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(
        tmp_path_factory.mktemp("groups") / "data", "--devices", "host:1", "--device-memory", "1GiB"
    ) as server:
        yield server
    assert not replay_file(server.data).differences


def said(**annotations):
    return [{"key": key.replace("_", "-"), "value": value} for key, value in annotations.items()]


def put(server, name, code, *, kind="python:3.11", key=None, **more):
    with server.client(key) as client:
        body = {"exec": {"kind": kind, "code": code}, **more}
        return client.put(f"actions/{name}", params={"overwrite": "true"}, json=body)


def chain(server, name, *components):
    with server.client() as client:
        body = {"exec": {"kind": "sequence", "components": [f"/_/{one}" for one in components]}}
        client.put(f"actions/{name}", params={"overwrite": "true"}, json=body).raise_for_status()


def invoke(server, name, args=None, key=None):
    with server.client(key) as client:
        return client.post(f"actions/{name}", params={"blocking": "true"}, json=args or {}).json()


def result(server, name, args=None):
    return invoke(server, name, args)["response"]["result"]


def record(server, activation_id):
    with server.client() as client:
        return client.get(f"activations/{activation_id}").raise_for_status().json()


def steps_of(server, whole):
    return [record(server, each) for each in whole["logs"]]


def annotation(record, key):
    return next(pair["value"] for pair in record["annotations"] if pair["key"] == key)


def flows(server):
    headers = {"authorization": f"Bearer {server.operator}"}
    return {
        one["function"]: one for one in httpx.get(f"{server.url}/operator/v1/status", headers=headers).json()["flows"]
    }


# --- one process, and what stays apart ------------------------------------------------------------------------


def test_functions_of_a_group_share_a_process_and_nothing_else(server):
    code = (
        MARKED
        + """
count = 0
def main(args):
    global count
    count += 1
    print("printed by", os.environ["__OW_ACTION_NAME"])
    os.environ["LEFT"] = os.environ.get("LEFT", "") + os.environ["MINE"]
    return {"process": builtins.token, "count": count, "left": os.environ["LEFT"]}
"""
    )
    for name in ("one", "two"):
        mine = [{"key": "MINE", "value": name, "init": True}]
        put(server, name, code, parameters=mine, annotations=said(group="pair")).raise_for_status()
    runs = [invoke(server, name) for name in ("one", "two", "one")]
    results = [each["response"]["result"] for each in runs]
    assert len({each["process"] for each in results}) == 1
    assert [each["count"] for each in results] == [1, 1, 2]
    assert [each["left"] for each in results] == ["one", "two", "oneone"]
    logs = [record(server, each["activationId"])["logs"] for each in runs]
    assert [line.rpartition("/")[2] for lines in logs for line in lines] == ["one", "two", "one"]
    assert "group:pair" in flows(server)
    assert not {"one", "two"} & flows(server).keys()


def test_modules_and_files_of_the_same_name_do_not_meet(server):
    main = (
        MARKED
        + """
import helpers
def main(args):
    import later
    return {"who": helpers.WHO, "later": later.WHO, "file": open("data.txt").read(), "process": builtins.token}
"""
    )
    for name in ("left", "right"):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("__main__.py", main)
            archive.writestr("helpers.py", f"WHO = {name!r}")
            archive.writestr("later.py", f"WHO = {name!r}")
            archive.writestr("data.txt", name)
        code = base64.b64encode(packed.getvalue()).decode()
        put(server, name, code, annotations=said(group="zips")).raise_for_status()
    found = [result(server, name) for name in ("left", "right", "left", "right")]
    assert len({one.pop("process") for one in found}) == 1
    assert found == [dict.fromkeys(("who", "later", "file"), name) for name in ("left", "right")] * 2


def test_one_that_cannot_start_does_not_keep_the_others_from_it(server):
    put(server, "good", "def main(args): return {}", annotations=said(group="half")).raise_for_status()
    put(server, "broken", "import nothing_of_this_name", annotations=said(group="half")).raise_for_status()
    assert result(server, "good") == {}
    failed = invoke(server, "broken")["response"]
    assert (failed["status"], failed["result"]["error"]) == (
        "action developer error", "Cannot start action. Check logs for details.",
    )  # fmt: skip
    assert result(server, "good") == {}


def test_what_another_namespace_calls_is_not_of_the_group(server):
    with server.client() as client:
        client.put("packages/open", json={"publish": True}).raise_for_status()
    put(server, "open/shown", MARKED + "def main(args): return {'process': builtins.token}",
        annotations=said(group="mine")).raise_for_status()  # fmt: skip
    put(server, "kept", MARKED + "def main(args): return {'process': builtins.token}",
        annotations=said(group="mine")).raise_for_status()  # fmt: skip
    mine = {result(server, "open/shown")["process"], result(server, "kept")["process"]}
    assert len(mine) == 1
    user, _, secret = server.create_namespace("visitor").partition(":")
    path = f"{server.url}/api/v1/namespaces/{server.namespace}/actions/open/shown"
    answer = httpx.post(path, params={"blocking": "true", "result": "true"}, auth=(user, secret), json={}, timeout=60)
    assert answer.json()["process"] not in mine


# --- chains ---------------------------------------------------------------------------------------------------

GIVE = """
import builtins
def main(args):
    print("give")
    value = b"x" * 200_000
    builtins.seen = [id(value)]
    return {"value": value, "more": [1, 2, object()]}
"""
HAND_ON = """
import builtins
def main(args):
    print("pass")
    builtins.seen.append(id(args["value"]))
    args["extra"] = args["default"]
    return args
"""
TAKE = """
import builtins
def main(args):
    print("take")
    builtins.seen.append(id(args["value"]))
    return {"same": len(set(builtins.seen)) == 1, "count": len(builtins.seen), "extra": args["extra"]}
"""


def test_a_sequence_of_a_group_hands_on_the_very_object(server):
    for name, code in (("give", GIVE), ("pass", HAND_ON), ("take", TAKE)):
        default = [{"key": "default", "value": 7}] if name == "pass" else []
        put(server, name, code, parameters=default, annotations=said(group="chain")).raise_for_status()
    chain(server, "all", "give", "pass", "take")
    whole = invoke(server, "all")
    assert whole["response"]["result"] == {"same": True, "count": 3, "extra": 7}
    steps = steps_of(server, whole)
    assert [step["name"] for step in steps] == ["give", "pass", "take"]
    assert [step["logs"][0].rpartition(" ")[2] for step in steps] == ["give", "pass", "take"]
    assert all(step["cause"] == whole["activationId"] for step in steps)
    assert [annotation(step, "causedBy") for step in steps] == ["sequence"] * 3
    assert [annotation(step, "start") for step in steps] == ["cold", "warm", "warm"]
    # Large values and values without a JSON form are described. Values passed on were never encoded.
    assert steps[0]["response"]["result"] == {
        "value": {"type": "bytes", "bytes": 200_000}, "more": [1, 2, {"type": "object"}],
    }  # fmt: skip


def test_a_chain_ends_where_a_step_fails(server):
    put(server, "first", "def main(args): return args", annotations=said(group="fails")).raise_for_status()
    code = "def main(args): return {'say': {'error': 'no more'}, 'number': 3}.get(args['how']) or 1 / 0"
    put(server, "second", code, annotations=said(group="fails")).raise_for_status()
    put(server, "third", "def main(args): return {'never': 1}", annotations=said(group="fails")).raise_for_status()
    chain(server, "failing", "first", "second", "third")
    for how, status, error in (
        ("say", "application error", "no more"),
        ("raise", "application error", "division by zero"),
        ("number", "action developer error", "The action did not return a dictionary or array."),
    ):
        whole = invoke(server, "failing", {"how": how})
        assert whole["response"]["result"] == {"error": error}
        steps = steps_of(server, whole)
        assert [step["name"] for step in steps] == ["first", "second"]
        assert [step["response"]["status"] for step in steps] == ["success", status]


def test_a_sequence_that_leaves_the_group_goes_on_outside(server):
    same = MARKED + "def main(args): return {'went': [*args.get('went', []), builtins.token]}"
    for name in ("in1", "in2", "in3"):
        put(server, name, same, annotations=said(group="mixed")).raise_for_status()
    put(server, "out", same).raise_for_status()
    chain(server, "mixed", "in1", "in2", "out", "in3")
    a, b, c, d = result(server, "mixed")["went"]
    assert a == b == d != c


def test_each_step_has_its_own_time(server):
    put(server, "quick", "def main(args): return args", annotations=said(group="timed")).raise_for_status()
    slow = "import time\ndef main(args): time.sleep(30)"
    put(server, "slow", slow, limits={"timeout": 300}, annotations=said(group="timed")).raise_for_status()
    chain(server, "timed", "quick", "slow")
    whole = invoke(server, "timed")
    assert "exceeded its time limits of 300 milliseconds" in whole["response"]["result"]["error"]
    quick, slow = steps_of(server, whole)
    assert quick["response"]["success"]
    assert annotation(slow, "timeout") is True


def test_a_chain_that_is_cancelled_ends_in_the_step_that_runs(server):
    put(server, "begin", "def main(args): return args", annotations=said(group="long")).raise_for_status()
    put(
        server, "linger", "import time\ndef main(args): time.sleep(60)", annotations=said(group="long")
    ).raise_for_status()
    chain(server, "lingering", "begin", "linger")
    with server.client() as client:
        whole = client.post("actions/lingering").json()["activationId"]
        wait_until(lambda: client.get("activations", params={"name": "begin"}).json(), what="the first step's record")
        client.delete(f"activations/{whole}").raise_for_status()
        ended = wait_for_record(client, whole)
    begin, linger = steps_of(server, ended)
    assert begin["response"]["success"]
    assert not linger["response"]["success"]


# --- requests together ----------------------------------------------------------------------------------------


def test_memory_is_the_members_together_and_an_overrun_is_the_running_ones_error(server):
    code = "def main(args): return {'size': len(bytearray(args['mib'] << 20))}"
    for name in ("small", "large"):
        put(server, name, code, limits={"memory": 128}, annotations=said(group="memory")).raise_for_status()
    assert result(server, "small", {"mib": 160}) == {"size": 160 << 20}
    failed = invoke(server, "small", {"mib": 400})["response"]
    assert (failed["status"], failed["result"]["error"]) == (
        "action developer error", "The action exhausted its memory and was aborted.",
    )  # fmt: skip
    assert result(server, "large", {"mib": 1}) == {"size": 1 << 20}


def test_a_group_that_no_device_can_hold_is_refused_at_the_deploy_that_makes_it_so(server):
    code = "def main(args): return {}"
    put(server, "half", code, annotations=said(group="big", gpu_share=0.5, gpu_memory="600MiB")).raise_for_status()
    answer = put(server, "more", code, annotations=said(group="big", gpu_share=0.7))
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert answer.json()["error"] == (
        "group 'big' (half, more) asks for its members' requests together: a share of 1.2 is neither at most 1 nor a "
        "whole number of devices; beside the others of the group the largest that would fit is a share of 0.5 with "
        "444596224 bytes"
    )
    answer = put(server, "more", code, annotations=said(group="big", gpu_share=0.5, gpu_memory="600MiB"))
    assert "needs 1258291200 bytes of 1073741824" in answer.json()["error"]
    put(server, "more", code, annotations=said(group="big", gpu_share=0.5, gpu_memory="400MiB")).raise_for_status()
    assert result(server, "more") == {}
    with server.client() as client:
        assert client.get("actions/half").json()["version"] == "0.0.1"


def test_a_memory_limit_beyond_every_device_is_refused_by_its_name(server):
    code = "def main(args): return {}"
    alone = put(server, "far", code, annotations=said(gpu_share=0.5, gpu_memory="1MiB", gpu_memory_limit="2GiB"))
    assert alone.status_code == httpx.codes.BAD_REQUEST
    error = alone.json()["error"]
    assert error.startswith("annotation gpu-memory-limit: ")
    assert "needs 2147483648 bytes of 1073741824" in error
    limits = {"gpu_share": 0.25, "gpu_memory": "1MiB", "gpu_memory_limit": "600MiB"}
    put(server, "one", code, annotations=said(group="far", **limits)).raise_for_status()
    error = put(server, "two", code, annotations=said(group="far", **limits)).json()["error"]
    assert "annotation gpu-memory-limit: " in error
    assert "needs 1258291200 bytes of 1073741824" in error
    assert error.endswith("the largest that would fit is a share of 0.75 with 444596224 bytes")


@pytest.mark.parametrize(
    ("value", "shown"), [("", "''"), ("a b", "'a b'"), ("x" * 65, f"'{'x' * 65}'"), (5, "5"), (["a"], "['a']")]
)
def test_a_name_that_is_none_is_refused(server, value, shown):
    answer = put(server, "named", "def main(args): return {}", annotations=said(group=value))
    assert answer.status_code == httpx.codes.BAD_REQUEST
    takes = "it takes a name of letters, digits, '_', '-' and '.', at most 64 of them"
    assert answer.json()["error"] == f"annotation group: {takes}, not {shown}"


def test_other_kinds_than_python_are_refused(server):
    answer = put(server, "js", "function main() {}", kind="nodejs:20", annotations=said(group="any"))
    assert answer.json()["error"] == "annotation group: it takes Python functions (python:3.11) alone, not nodejs:20"
    with server.client() as client:
        body = {"exec": {"kind": "sequence", "components": ["/_/good"]}, "annotations": said(group="any")}
        answer = client.put("actions/seq", json=body)
    assert answer.json()["error"] == (
        "annotation group: a sequence has no sandbox to share; it goes on the actions it is made of"
    )


def test_requirements_that_contradict_each_other_are_refused(server):
    code = "def main(args): return {}"
    needs = said(group="libs", requirements=["Some.Lib==1"])
    put(server, "old", code, annotations=needs).raise_for_status()
    answer = put(server, "new", code, annotations=said(group="libs", requirements=["some-lib==2"]))
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert answer.json()["error"] == (
        "annotation requirements: the functions of a group share an environment, and in group 'libs' old has "
        "'Some.Lib==1', not 'some-lib==2'; say the same in both, or leave the group"
    )
    put(server, "new", code, annotations=said(group="libs", requirements=["Some.Lib==1", "other"])).raise_for_status()


# --- changes --------------------------------------------------------------------------------------------------


def test_what_waits_follows_its_function_out_of_the_group_and_into_it(server):
    hold = "import time\ndef main(args): time.sleep(args.get('s', 0)); return {'v': 1}"
    one = {"instances": 1}
    put(server, "busy", hold, limits=one, annotations=said(group="queue")).raise_for_status()
    put(server, "moves", hold, limits=one, annotations=said(group="queue")).raise_for_status()
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(result(server, "moves")))
    with server.client() as client:
        held = client.post("actions/busy", json={"s": 60}).json()["activationId"]
        wait_until(lambda: flows(server)["group:queue"]["in_flight"], what="the run that holds the group")
        waiting.start()
        wait_until(
            lambda: flows(server)["group:queue"]["queued"] or not waiting.is_alive(),
            what="the call that waits behind it",
        )
        put(server, "moves", hold.replace("1}", "2}"), annotations=said(group=None)).raise_for_status()
        waiting.join()
        client.delete(f"activations/{held}").raise_for_status()
    assert answers == [{"v": 2}]
    assert "moves" in flows(server)
    put(server, "moves", hold, annotations=said(group="queue")).raise_for_status()
    assert result(server, "moves") == {"v": 1}
    assert "moves" not in flows(server)


def test_a_function_that_is_deleted_leaves_the_group(server):
    for name in ("stays", "goes"):
        put(server, name, "def main(args): return {}", annotations=said(group="left")).raise_for_status()
    assert result(server, "goes") == {}
    with server.client() as client:
        client.delete("actions/goes").raise_for_status()
        assert client.post("actions/goes").status_code == httpx.codes.NOT_FOUND
    assert result(server, "stays") == {}
    with server.client() as client:
        client.delete("actions/stays").raise_for_status()
    wait_until(lambda: flows(server), lambda found: "group:left" not in found, what="the group's flow to go")


def test_a_call_that_is_cancelled_after_its_function_has_moved_does_not_run(server):
    hold = "import time\ndef main(args): time.sleep(args.get('s', 0)); return {}"
    one = {"instances": 1}
    put(server, "holds", hold, limits=one, annotations=said(group="moving")).raise_for_status()
    put(server, "other", hold, limits=one, annotations=said(group="moving")).raise_for_status()
    with server.client() as client:
        held = client.post("actions/holds", json={"s": 60}).json()["activationId"]
        wait_until(lambda: flows(server)["group:moving"]["in_flight"], what="the run that holds the group")
        waits = client.post("actions/holds").json()["activationId"]
        wait_until(lambda: flows(server)["group:moving"]["queued"], what="the call that waits behind it")
        put(server, "other", hold, annotations=said(group=None)).raise_for_status()
        client.delete(f"activations/{waits}").raise_for_status()
        client.delete(f"activations/{held}").raise_for_status()
        ended = wait_for_record(client, waits)
    assert not ended["response"]["success"]


def test_one_that_wants_no_key_gets_none_of_anothers(server):
    code = "import os\ndef main(args): return {'has': '__OW_API_KEY' in os.environ}"
    put(server, "keyed", code, annotations=said(group="keys", provide_api_key=True)).raise_for_status()
    put(server, "keyless", code, annotations=said(group="keys", provide_api_key=False)).raise_for_status()
    assert [result(server, name)["has"] for name in ("keyed", "keyless", "keyed")] == [True, False, True]


def test_weights_that_are_too_much_together_are_refused(server):
    code = "def main(args): return {}"
    put(server, "heavy", code, annotations=said(group="weights", weight=999_999.5)).raise_for_status()
    answer = put(server, "heavier", code, annotations=said(group="weights", weight=2))
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert answer.json()["error"] == (
        "annotation weight: a group has its members' together, which would be 1000001.5 in group 'weights'; "
        "it takes at most 1000000"
    )


def test_whole_devices_are_for_one_member_to_ask_for(server):
    code = "def main(args): return {}"
    put(server, "whole", code, annotations=said(group="wholes", gpu_share=1)).raise_for_status()
    answer = put(server, "second", code, annotations=said(group="wholes", gpu_share=1))
    assert "a share of 2 is of several devices, for which one member alone may ask" in answer.json()["error"]


@pytest.mark.parametrize(
    "value",
    [
        {f"{number:03}" + "k" * 250: number for number in range(1000)},
        [type("long" * 10_000, (), {})()] * 1000,
        "\x00" * 16_000,
    ],
)
def test_what_a_record_shows_of_a_value_goes_in_one_packet(value):
    assert len(summarize(value)) <= 128 * 1024


def test_what_a_record_shows_of_nested_lists_is_bounded_by_their_values():
    value = [1] * 900
    for _ in range(15):
        value = [value, *[2**255] * 900]
    assert len(summarize(value)) < 100_000
    assert json.loads(summarize({"a": [1, "x", None]})) == {"a": [1, "x", None]}
