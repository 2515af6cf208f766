"""Objects of executions: containers, what is kept in memory and on disk, and who may read it."""

import asyncio
import json
import pickle

import pytest
from rig import Rig, on_a_rig

from aliquot.live.invocations.errors import PayloadError
from aliquot.live.store.base import Retention
from aliquot.live.store.records import Action, Exec, Pair
from aliquot.runtime import objects
from aliquot.runtime.objects import PackedObject, pack, take_out, unpack
from aliquot.testing.waiting import wait_until_async
from aliquot.workflow.values import ObjectRef, decode_object, described_text, encode_object, to_text

SDK = (Pair("sdk", True),)
CODE = Exec("python:3.11", "def main(args): return args")
TASK = {"Type": "Task", "Resource": "a"}
WAIT = {"Type": "Wait", "Seconds": 3600}
FAIL = {"Type": "Fail", "Error": "Broken"}


def workflow(name, *states, **annotations):
    names = "ABCD"[: len(states)]
    linked = {
        at: {**state, **({} if state["Type"] == "Fail" else {"End": True} if at == names[-1] else {"Next": following})}
        for at, state, following in zip(names, states, names[1:] + " ", strict=True)
    }
    pairs = tuple(Pair(key, value) for key, value in annotations.items())
    code = Exec("workflow", json.dumps({"StartAt": "A", "States": linked}))
    return Action("guest", name, "0.0.1", code, annotations=pairs, revision=f"of {name}")


ACTIONS = (
    Action("guest", "a", "0.0.1", CODE, annotations=SDK),
    workflow("one", TASK),
    workflow("two", TASK, TASK),
    workflow("express", TASK, TASK, durable=False),
    workflow("late", TASK, WAIT, TASK),
    workflow("failing", TASK, FAIL),
    workflow("outer", {"Type": "Task", "Resource": "one"}, TASK),
)
run = on_a_rig(catalogued=ACTIONS)
RESULT = json.dumps({"n": 1, "object": {"type": "Thing", "bytes": 5}}).encode()


def container(body=b"thing", path=("object",)):
    return pack(b"", [PackedObject(list(path), body)])


async def kept(rig, execution, owner="guest"):
    """Return the ids of the objects that an execution has on disk."""
    rows = await rig.store._read(
        lambda connection: connection.execute("SELECT id FROM execution_object WHERE execution = ?", (execution,))
        .fetchall()
    )  # fmt: skip
    return sorted(await rig.store.execution_objects(owner, execution, [row[0] for row in rows]))


async def payload_of(rig):
    """Return the value and the objects that the running task gets."""
    sandbox = await rig.running()
    request = rig.node.running[sandbox]
    assert request.objects == ()
    text, packed = unpack(request.payload)
    return json.loads(bytes(text)), [(one.path, bytes(one.body)) for one in packed]


# --- containers -----------------------------------------------------------------------------------------------


def test_a_container_holds_a_value_and_its_objects():
    body = pack(b'{"a":null}', [PackedObject(["a"], b"first"), PackedObject(["b", 0], b"", (0, 64))])
    text, found = unpack(body)
    assert bytes(text) == b'{"a":null}'
    assert [(one.path, bytes(one.body), one.shared) for one in found] == [
        (["a"], b"first", None),
        (["b", 0], b"", (0, 64)),
    ]


@pytest.mark.parametrize(
    "index",
    [b"{", b"{}", b"[1]", b"[[1,2,null]]", b'[[["a"],-1,null]]', b'[[["a"],99,null]]', b'[[["a"],0,[1]]]',
     b"[[[[1]],0,null]]", b'[[["a"],0,["x",1]]]', b"[" * 100_000],
)  # fmt: skip
def test_a_malformed_index_is_refused(index):
    whole = objects._HEAD.pack(b"\x00ALO", 2, len(index)) + b"{}" + index
    with pytest.raises(ValueError, match=r"."):
        unpack(whole)


def test_a_container_that_is_cut_off_is_refused_at_every_length():
    whole = pack(b"{}", [PackedObject(["a"], b"first")])
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            unpack(whole[:length])


def test_objects_are_taken_out_and_what_json_holds_stays():
    value = {"a": 1, "b": [b"x", {"c": {1, 2}}], "d": float("nan"), "e": {(1, 2): 3}, "f": (1, 2)}
    plain, found = take_out(value)
    assert [path for path, _ in found] == [["b", 0], ["b", 1, "c"], ["d"], ["e"]]
    assert plain["a"] == 1
    assert plain["f"] == [1, 2]
    assert plain["b"][0] == {"type": "bytes", "bytes": 1}


def test_a_large_part_is_taken_out_and_small_ones_stay():
    value = {"small": 1, "large": ["x" * 1000] * 2000, "inside": {"object": b"x"}}
    plain, found = take_out(value)
    assert [path for path, _ in found] == [["inside", "object"], ["large"]]
    assert plain["small"] == 1
    assert take_out(["x" * 2_000_000])[1][0][0] == []
    assert take_out([b""] * (objects.MAX_OBJECTS + 1))[1][0][0] == []
    deep = []
    deep.append(deep)
    assert take_out(deep)[1]


def test_a_reference_is_never_equal_to_data_and_cannot_be_looked_into():
    reference = ObjectRef("a.0", "Thing", 5)
    assert decode_object(1, memoryview(encode_object(reference).data)) == reference
    assert reference != reference.describe()
    assert described_text([reference]) == '[{"type":"Thing","bytes":5}]'
    for look in (to_text, bool, str, lambda one: f"{one}"):
        with pytest.raises(TypeError, match="hand it on"):
            look(reference)


# --- executions -----------------------------------------------------------------------------------------------


@run
async def test_an_object_is_on_disk_before_the_next_task_and_removed_at_the_end(rig):
    call = rig.call("two")
    await rig.composer.accept(call)
    await rig.finish(RESULT, container())
    value, found = await payload_of(rig)
    assert (value, found) == ({"n": 1, "object": None}, [([0, "object"], b"thing")])
    assert len(await kept(rig, call.id)) == 1
    assert await kept(rig, call.id, owner="neighbour") == []
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    assert await kept(rig, call.id) == []


@run
async def test_the_output_is_kept_with_its_objects_in_the_record(rig):
    call = rig.call("one")
    rig.composer.submit(call)
    await rig.finish(RESULT, container())
    await rig.until_ended(call)
    record = await rig.store.activation("guest", call.id)
    text, found = unpack(record.pickled)
    assert json.loads(bytes(text)) == {"n": 1, "object": None}
    assert bytes(found[0].body) == b"thing"
    assert (await rig.record(call.id))["result"] == json.loads(RESULT)
    assert await rig.store.activation("neighbour", call.id) is None


@run
async def test_a_failed_execution_keeps_its_objects_for_a_redrive_until_its_record_is_removed(rig):
    call = rig.call("failing")
    await rig.composer.accept(call)
    await rig.finish(RESULT, container())
    await rig.until_ended(call)
    assert len(await kept(rig, call.id)) == 1
    await rig.store.prune(Retention(activations_bytes=0, activations_min_bytes=0), now_ms=None)
    assert await kept(rig, call.id) == []


def test_the_next_server_reads_objects_from_the_disk(tmp_path):
    async def first():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            call = rig.call("two", 7)
            await rig.composer.accept(call)
            await rig.finish(RESULT, container())
            await payload_of(rig)
            return call.id

    async def second(execution):
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            await rig.composer.workflows.executions.start()
            assert await payload_of(rig) == ({"n": 1, "object": None}, [([0, "object"], b"thing")])
            await rig.finish(RESULT, container(b"other"))
            await wait_until_async(
                lambda: rig.store.execution("guest", execution), lambda row: row.status == "SUCCEEDED", what="the end"
            )
            assert await kept(rig, execution) == []

    asyncio.run(second(asyncio.run(first())))


@run
async def test_an_express_execution_keeps_its_objects_in_memory(rig):
    call = rig.call("express")
    rig.composer.submit(call)
    await rig.finish(RESULT, container())
    assert (await payload_of(rig))[1] == [([0, "object"], b"thing")]
    assert await kept(rig, call.id) == []
    await rig.finish(b"{}")
    await rig.until_ended(call)


@run
async def test_an_execution_inside_another_returns_objects(rig):
    call = rig.call("outer")
    await rig.composer.accept(call)
    await rig.finish(RESULT, container())
    assert (await payload_of(rig))[1] == [([0, "object"], b"thing")]
    await rig.finish(b"{}")
    await rig.until_ended(call)


@run
async def test_what_a_sandbox_says_of_its_objects_is_checked(rig):
    for body in (b"none", container(path=("missing",)), pack(b"", [PackedObject(["object"], b"", (0, 0))])):
        call = rig.call("one")
        await rig.composer.accept(call)
        await rig.finish(RESULT, body)
        await rig.until_ended(call)
        assert (await rig.record(call.id))["result"]["error"]["name"] == "Function.Crashed"


@run
async def test_a_namespace_may_not_keep_more_objects_than_its_quota(rig):
    call = rig.call("two")
    await rig.composer.accept(call)
    rig.store.limit_kept_bytes("guest", 100_000)
    await rig.finish(RESULT, container(b"x" * 200_000))
    await rig.until_ended(call)
    error = (await rig.record(call.id))["result"]["error"]
    assert error["name"] == "States.DataLimitExceeded"
    assert "kept_bytes" in error["cause"]


@run
async def test_an_input_has_objects_and_a_malformed_one_is_refused(rig):
    call = rig.call("one")
    call.pickled, call.payload = True, pack(b'{"x":null}', [PackedObject(["x"], pickle.dumps({1, 2}))])
    await rig.composer.accept(call)
    assert len(await kept(rig, call.id)) == 1
    assert (await payload_of(rig))[1] == [([0, "x"], pickle.dumps({1, 2}))]
    await rig.finish(b"{}")
    await rig.until_ended(call)
    broken = rig.call("one")
    broken.pickled, broken.payload = True, b"no container"
    with pytest.raises(PayloadError, match="no container"):
        await rig.composer.accept(broken)
