"""The shell of workflows between store and service, with a node that does as it is told."""

import asyncio
import json

import msgspec
import pytest
from rig import Rig, on_a_rig

from aliquot.live.invocations.errors import OverloadedError
from aliquot.live.invocations.recovery import recover_calls
from aliquot.live.invocations.workflows import executions as executions_module
from aliquot.live.invocations.workflows.control import ExecutionControl, TaskAnswer
from aliquot.live.invocations.workflows.timers import TimerHeap
from aliquot.live.invocations.workflows.turns import FairTurns
from aliquot.live.store.base import Retention, StoreError
from aliquot.live.store.executions import ExecutionQuery
from aliquot.live.store.records import Action, Exec, Pair
from aliquot.testing.waiting import wait_on_loop, wait_until_async
from aliquot.workflow.errors import EventRefusedError

CODE = Exec("python:3.11", "def main(args): return args")
TASK = {"Type": "Task", "Resource": "a"}


def workflow(name, states, **annotations):
    code = json.dumps({"StartAt": "A", "States": states})
    pairs = tuple(Pair(key, value) for key, value in annotations.items())
    return Action("guest", name, "0.0.1", Exec("workflow", code), annotations=pairs, revision=f"of {name}")


ACTIONS = (
    Action("guest", "a", "0.0.1", CODE),
    workflow("one", {"A": {**TASK, "End": True}}),
    workflow("two", {"A": {**TASK, "Next": "B"}, "B": {**TASK, "End": True}}),
    workflow("express", {"A": {**TASK, "Next": "B"}, "B": {**TASK, "End": True}}, durable=False),
    workflow("again", {"A": {**TASK, "End": True}}, durable=False, rerun=True),
    workflow("sleep", {"A": {"Type": "Wait", "Seconds": 3600, "End": True}}),
    workflow("ask", {"A": {"Type": "Task", "Resource": "a.waitForTaskToken", "End": True}}),
    workflow("failing", {"A": {"Type": "Fail", "Error": "Broken"}}),
    workflow(
        "wide",
        {
            "A": {
                "Type": "Map",
                "ItemsPath": "$.items",
                "ItemProcessor": {"StartAt": "Z", "States": {"Z": {**TASK, "End": True}}},
                "End": True,
            }
        },
    ),
    Action("guest", "twice more", "0.0.1", CODE, annotations=(Pair("rerun", value=True),)),
    workflow("bounded", {"A": {"Type": "Task", "Resource": "twice more", "End": True}}),
    workflow("pair", {"A": {"Type": "Task", "Resource": "one", "End": True}}),
)
run = on_a_rig(catalogued=ACTIONS)


async def status(rig, call):
    row = await rig.store.execution("guest", call.id)
    return None if row is None else row.status


@run
async def test_a_durable_execution_is_in_the_store_before_its_first_task_and_ends_with_its_record(rig):
    call = rig.call("two")
    await rig.composer.accept(call)
    assert await status(rig, call) == "RUNNING"
    await rig.finish(b'{"n":1}')
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    assert await status(rig, call) == "SUCCEEDED"
    assert (await rig.record(call.id))["result"] == {"n": 2}
    assert await rig.store.open_executions() == []


@run
async def test_an_express_execution_writes_nothing_but_its_record(rig):
    await rig.store.flush()
    call = rig.call("express")
    rig.composer.submit(call)
    await rig.finish(b'{"n":1}')
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    assert await status(rig, call) is None
    assert (await rig.record(call.id))["result"] == {"n": 2}


@run
async def test_nothing_goes_on_and_nothing_is_lost_while_the_disk_is_full(rig):
    call = rig.call("two")
    await rig.composer.accept(call)
    sandbox = await rig.running()
    write = rig.store.write_execution
    failures = []

    def fail(change):
        failures.append(change)
        raise StoreError("the disk is full", "the disk is full")

    rig.store.write_execution = fail
    rig.node.finish(sandbox, b'{"n":1}')
    await wait_on_loop(lambda: failures, what="a write that fails")
    assert rig.node.running == {} or sandbox not in rig.node.running
    with pytest.raises(OverloadedError):
        await rig.composer.accept(rig.call("two"))
    assert await status(rig, call) == "RUNNING"
    assert not rig.node.running
    rig.store.write_execution = write
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    assert (await rig.record(call.id))["result"] == {"n": 2}


@run
async def test_a_stop_that_comes_after_the_last_event_is_refused_and_the_execution_succeeds(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("one")
    await rig.composer.accept(call)
    rig.node.finish(await rig.running(), b'{"n":1}')
    with pytest.raises(EventRefusedError):
        await control.stop("guest", call.id, "", "")
    await rig.until_ended(call)
    assert await status(rig, call) == "SUCCEEDED"


@run
async def test_an_execution_that_only_waits_leaves_memory_and_comes_back_when_it_is_stopped(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    shell = rig.composer.workflows.executions
    call = rig.call("sleep")
    await rig.composer.accept(call)
    assert call.id in shell.engine.runs
    shell.engine.idle[call.id] -= executions_module.RESIDENT_S + 1
    shell._sweep()
    assert call.id not in shell.engine.runs
    assert (rig.ended, call.parked) == ([call], True)  # it is no longer a call in flight
    assert len(shell.engine.timers) == 1
    assert await control.stop("guest", call.id, "Enough", "")
    assert await status(rig, call) == "ABORTED"
    assert len(shell.engine.timers) == 0
    shell.stop()


@run
async def test_tokens_of_others_forged_ones_and_second_answers_are_refused(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("ask")
    await rig.composer.accept(call)
    await rig.running()
    run_ = rig.composer.workflows.executions.engine.runs[call.id]
    (task,) = [one for one in rig.service.calls.values() if one.task is not None]
    token = task.task.token
    assert not await control.answer("another", token, TaskAnswer(1))
    assert not await control.answer("guest", token[:-1] + ("0" if token[-1] != "0" else "1"), TaskAnswer(1))
    first, second = await asyncio.gather(
        control.answer("guest", token, TaskAnswer("yes")),
        control.answer("guest", token, TaskAnswer("no")),
        return_exceptions=True,
    )
    assert first is True
    assert isinstance(second, EventRefusedError) or second is False
    assert run_.machine.output == "yes"
    await rig.until_ended(call)
    await rig.finish_all()  # the function returns after its answer, which is no error


@run
async def test_a_child_ends_with_its_parent(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("pair")
    await rig.composer.accept(call)
    await rig.running()
    rows = await rig.store.executions(ExecutionQuery("guest"))
    (child,) = [row.id for row in rows if row.id != call.id]
    await control.stop("guest", call.id, "", "")
    await wait_until_async(
        lambda: rig.store.execution("guest", child), lambda row: row.status == "ABORTED", what="the end of the child"
    )
    await rig.finish_all()


@run
async def test_an_execution_is_removed_as_a_whole_with_its_record(rig):
    call = rig.call("one")
    await rig.composer.accept(call)
    await rig.finish(b"{}")
    await rig.until_ended(call)
    sleeping = rig.call("sleep")
    await rig.composer.accept(sleeping)
    await rig.store.prune(Retention(activations_bytes=0, activations_min_bytes=0), now_ms=None)
    assert await rig.store.stored_execution("guest", call.id) is None
    assert await rig.record(call.id) is None
    assert (await rig.store.stored_execution("guest", sleeping.id)).definition


def test_an_execution_is_continued_by_the_next_server(tmp_path):
    async def first():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            call = rig.call("two", 7)
            await rig.composer.accept(call)
            await rig.finish(b'{"n":1}')
            await rig.running()
            rig.composer.workflows.executions.stop()

    async def second():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            assert await rig.composer.workflows.executions.start() == 1
            await rig.finish(b'{"n":2}')
            found = await wait_until_async(lambda: rig.record(f"{7:032x}"), what="the record")
            assert found["result"] == {"n": 2}
            rig.composer.workflows.executions.stop()

    asyncio.run(first())
    asyncio.run(second())


def test_a_task_runs_again_after_as_many_crashes_as_its_function_allows(tmp_path):
    async def crash(is_first):
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            if is_first:
                await rig.composer.accept(rig.call("bounded", 7))
            else:
                assert await rig.composer.workflows.executions.start() == 1
            await rig.running()
            rig.composer.workflows.executions.stop()

    async def last():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            await rig.composer.workflows.executions.start()
            found = await wait_until_async(lambda: rig.record(f"{7:032x}"), what="the record")
            error = found["result"]["error"]
            assert error["name"] == "Function.Interrupted"
            assert "stopped 3 times" in error["cause"]
            rig.composer.workflows.executions.stop()

    for number in range(3):
        asyncio.run(crash(number == 0))
    asyncio.run(last())


def test_an_express_execution_whose_caller_stopped_waiting_runs_again_with_its_input(tmp_path):
    async def first():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            call = rig.call("again", 8)
            call.payload = b'{"n":5}'
            rig.composer.submit(call)
            await rig.running()
            await rig.composer.detach(call)
            assert [one.payload for one in await rig.store.unfinished()] == [b'{"n":5}']

    async def second():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            assert await recover_calls(rig.composer, rig.store, rig.catalogue) == 1
            sandbox = await rig.running()
            assert rig.node.running[sandbox].payload == b'{"n":5}'
            rig.node.finish(sandbox, b'{"n":6}')
            found = await wait_until_async(lambda: rig.record(f"{8:032x}"), what="the record")
            assert found["result"] == {"n": 6}

    asyncio.run(first())
    asyncio.run(second())


def test_timers_are_due_in_their_order_and_a_new_time_replaces_the_old_one():
    async def whole():
        now, due = [0.0], []
        heap = TimerHeap(lambda: now[0], due.append)
        for name, at in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a", 5.0), ("d", 4.0)):
            heap.set(name, at)
        heap.set("d", None)
        now[0] = 4.5
        heap.set("e", 4.0)  # wakes it
        await wait_on_loop(lambda: len(due), lambda count: count == 3, what="timers that are due")
        assert due == ["b", "c", "e"]
        assert len(heap) == 1
        heap.stop()

    asyncio.run(whole())


def test_owners_take_turns():
    async def whole():
        turns, done = FairTurns(), []
        for number in range(3):
            turns.add("greedy", lambda number=number: done.append(f"greedy {number}"))
        turns.add("modest", lambda: done.append("modest"))
        await wait_on_loop(lambda: len(done), lambda count: count == 4, what="all work")
        assert done.index("modest") == 1

    asyncio.run(whole())


@run
async def test_the_variables_of_a_task_name_its_key_and_its_activation(rig):
    call = rig.call("one")
    await rig.composer.accept(call)
    sandbox = await rig.running()
    env = rig.node.running[sandbox].env
    task = msgspec.json.decode(env["ALIQUOT_TASK"])
    assert task["activation"] == env["__OW_ACTIVATION_ID"]
    assert task["execution"] == call.id
    assert len(task["key"]) == 32
    await rig.finish_all()


@run
async def test_a_stop_ends_all_tasks_of_a_map_of_a_thousand(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("wide")
    call.payload = msgspec.json.encode({"items": list(range(1000))})
    await rig.composer.accept(call)
    await wait_on_loop(lambda: len(rig.service.calls), lambda count: count == 256, what="the tasks in flight")
    assert await control.stop("guest", call.id, "", "")
    assert await status(rig, call) == "ABORTED"
    await rig.finish_all()
    assert rig.composer.workflows._calls._slots.used == 0


@run
async def test_two_redrives_at_once_are_one(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("failing")
    await rig.composer.accept(call)
    await rig.until_ended(call)
    first, second = await asyncio.gather(
        control.redrive("guest", call.id), control.redrive("guest", call.id), return_exceptions=True
    )
    assert first is True
    assert second is True or isinstance(second, EventRefusedError)
    described = await control.describe("guest", call.id)
    assert described.row.status == "FAILED"
    assert (described.outcome.error, described.outcome.redrives) == ("Broken", 1)
    history = [event["type"] for event in await control.history("guest", call.id)]
    assert history.count("ExecutionRedriven") == history.count("ExecutionFailed") - 1


@run
async def test_a_function_that_was_deleted_meanwhile_is_missing(rig):
    call = rig.call("two")
    await rig.composer.accept(call)
    sandbox = await rig.running()
    async with rig.catalogue.writing("guest"):
        await rig.catalogue.delete(rig.catalogue.entities.one(Action, "guest", "a"))
    if sandbox in rig.node.running:
        rig.node.finish(sandbox, b'{"n":1}')
    await rig.until_ended(call)
    error = (await rig.record(call.id))["result"]["error"]
    assert error == {"name": "Function.Missing", "cause": "the action a does not exist"}
