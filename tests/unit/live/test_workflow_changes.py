"""Workflows that are changed or deleted while executions run, and stops that fall into a write of the store."""

import asyncio
import json

import pytest
from rig import Rig, on_a_rig

from aliquot.live.invocations.workflows.control import ExecutionControl
from aliquot.live.store.base import StoreError
from aliquot.live.store.records import Action, Exec, Pair
from aliquot.testing.waiting import wait_on_loop, wait_until_async
from aliquot.workflow.errors import EventRefusedError

CODE = Exec("python:3.11", "def main(args): return args")
FAIL = {"Type": "Fail", "Error": "Broken"}


def task(name, **more):
    return {"Type": "Task", "Resource": name, **(more or {"End": True})}


def workflow(name, version, states, **annotations):
    code = json.dumps({"StartAt": "A", "States": states})
    pairs = tuple(Pair(key, value) for key, value in annotations.items())
    revision = f"{name} {version}"
    return Action("guest", name, f"0.0.{version}", Exec("workflow", code), annotations=pairs, revision=revision)


TWO = {"A": task("a", Next="B"), "B": task("a")}
OTHER = {"A": {"Type": "Pass", "Result": {"changed": True}, "End": True}}
ACTIONS = (
    Action("guest", "a", "0.0.1", CODE),
    workflow("two", 1, TWO),
    workflow("express", 1, TWO, durable=False),
    workflow("outer", 1, {"A": task("two", Next="B"), "B": task("two")}),
    workflow("failing", 1, {"A": task("a", Next="B"), "B": FAIL}),
    workflow("asking", 1, {"A": task("a.waitForTaskToken")}),
)
run = on_a_rig(catalogued=ACTIONS)


async def change(rig, action):
    """Replace a workflow, or delete it if it is given by its name."""
    async with rig.catalogue.writing("guest"):
        if isinstance(action, str):
            await rig.catalogue.delete(rig.catalogue.entities.one(Action, "guest", action))
        else:
            await rig.catalogue.put(action)


async def outcome(rig, execution):
    row = await rig.store.execution("guest", execution)
    return row.status, json.loads(row.outcome) if row.outcome else None


# --- changed and deleted --------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [workflow("two", 2, OTHER), "two"], ids=["updated", "deleted"])
@pytest.mark.parametrize("restarted", [False, True], ids=["in memory", "after a restart"])
def test_an_execution_goes_on_with_the_definition_that_it_began_with(tmp_path, changed, restarted):
    execution = f"{7:032x}"

    async def begin():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            await rig.composer.accept(rig.call("two", 7))
            await rig.finish(b'{"n":1}')
            await rig.running()
            await change(rig, changed)
            if restarted:
                rig.composer.workflows.executions.stop()
            else:
                await end(rig)

    async def end(rig):
        await rig.finish(b'{"n":2}')
        found = await wait_until_async(lambda: rig.record(execution), what="the record")
        assert found["result"] == {"n": 2}

    async def take_up():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            assert await rig.composer.workflows.executions.start() == 1
            await end(rig)
            rig.composer.workflows.executions.stop()

    asyncio.run(begin())
    if restarted:
        asyncio.run(take_up())


@run
async def test_a_new_execution_takes_the_changed_definition_while_the_old_one_runs(rig):
    old, new = rig.call("two"), None
    await rig.composer.accept(old)
    await rig.running()
    await change(rig, workflow("two", 2, OTHER))
    new = rig.call("two")
    await rig.composer.accept(new)
    await rig.until_ended(new)
    assert (await rig.record(new.id))["result"] == {"changed": True}
    await rig.finish(b'{"n":1}')
    await rig.finish(b'{"n":2}')
    await rig.until_ended(old)
    assert (await rig.record(old.id))["result"] == {"n": 2}


@run
async def test_an_express_execution_ends_with_its_definition_when_its_workflow_is_deleted(rig):
    call = rig.call("express")
    rig.composer.submit(call)
    await rig.running()
    await change(rig, "express")
    await rig.finish(b'{"n":1}')
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    assert (await rig.record(call.id))["result"] == {"n": 2}


@run
async def test_a_workflow_as_a_task_is_taken_as_it_is_when_its_state_is_entered(rig):
    call = rig.call("outer")
    await rig.composer.accept(call)
    await rig.finish(b'{"n":1}')
    await rig.running()
    await change(rig, workflow("two", 2, OTHER))
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    assert (await rig.record(call.id))["result"] == {"changed": True}


@run
async def test_a_deleted_workflow_is_missing_for_the_states_that_are_entered_later(rig):
    call = rig.call("outer")
    await rig.composer.accept(call)
    await rig.finish(b'{"n":1}')
    await rig.running()
    await change(rig, "two")
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    error = (await rig.record(call.id))["result"]["error"]
    assert error == {"name": "Function.Missing", "cause": "the action two does not exist"}


@run
async def test_an_execution_of_a_deleted_workflow_is_described_drawn_and_redriven(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("failing")
    await rig.composer.accept(call)
    await rig.finish(b'{"n":1}')
    await rig.until_ended(call)
    await change(rig, "failing")
    assert await control.redrive("guest", call.id)
    found = await wait_until_async(
        lambda: control.describe("guest", call.id), lambda one: one.row.status == "FAILED", what="the end"
    )
    assert (found.outcome.error, found.outcome.redrives) == ("Broken", 1)
    kinds = [event["type"] for event in await control.history("guest", call.id)]
    assert kinds.count("FailStateEntered") == 2
    assert kinds.count("TaskScheduled") == 1  # what succeeded did not run again
    definition = json.loads(await control.definition("guest", call.id))
    assert definition["States"]["B"] == FAIL


# --- stops that fall into a write ---------------------------------------------------------------------------


class HeldStore:
    """Holds the writes of executions back until the test lets them go on."""

    def __init__(self, store):
        self._write = store.write_execution
        self.held = []
        store.write_execution = self._hold

    def _hold(self, change):
        written = asyncio.get_running_loop().create_future()
        self.held.append((change, written))
        return written

    async def release(self, error=None):
        """Perform the oldest write, or let it fail."""
        change, written = self.held.pop(0)
        if error is not None:
            written.set_exception(error)
        else:
            await self._write(change)
            written.set_result(None)

    async def one(self):
        await wait_on_loop(lambda: self.held, what="a write")


@run
async def test_a_stop_that_falls_into_the_write_of_a_step_ends_what_that_step_began(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("two")
    await rig.composer.accept(call)
    sandbox = await rig.running()
    store = HeldStore(rig.store)
    rig.node.finish(sandbox, b'{"n":1}')
    await store.one()
    stopping = asyncio.ensure_future(control.stop("guest", call.id, "Enough", ""))
    await rig.turn()
    assert not stopping.done()
    assert len(store.held) == 1  # the stop waits for the write before it
    await store.release()
    await store.one()
    assert not stopping.done()  # it is not on disk yet
    await store.release()
    assert await stopping
    assert await outcome(rig, call.id) == ("ABORTED", {"error": "Enough", "cause": None, "deviceMs": {"cpu": 1.0}})
    await rig.finish_all()
    assert await rig.store.open_executions() == []
    assert rig.composer.workflows._calls._slots.used == 0


@run
async def test_a_stop_that_falls_into_the_write_of_the_end_is_refused(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("two")
    await rig.composer.accept(call)
    await rig.finish(b'{"n":1}')
    sandbox = await rig.running()
    store = HeldStore(rig.store)
    rig.node.finish(sandbox, b'{"n":2}')
    await store.one()
    stopping = asyncio.ensure_future(control.stop("guest", call.id, "", ""))
    await rig.turn()
    await store.release()
    with pytest.raises(EventRefusedError):
        await stopping
    assert (await outcome(rig, call.id))[0] == "SUCCEEDED"


@run
async def test_a_stop_that_falls_into_the_write_of_the_start_stops_what_has_just_begun(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    store = HeldStore(rig.store)
    call = rig.call("two")
    starting = asyncio.ensure_future(rig.composer.accept(call))
    await store.one()
    stopping = asyncio.ensure_future(control.stop("guest", call.id, "", ""))
    await rig.turn()
    await store.release()
    await starting
    await store.one()
    await store.release()
    assert await stopping
    assert (await outcome(rig, call.id))[0] == "ABORTED"
    await rig.finish_all()


@run
async def test_a_stop_whose_own_write_fails_is_written_again_before_it_is_answered(rig):
    control = ExecutionControl(rig.composer.workflows, rig.store)
    call = rig.call("asking")
    await rig.composer.accept(call)
    await rig.running()
    store = HeldStore(rig.store)
    stopping = asyncio.ensure_future(control.stop("guest", call.id, "", ""))
    await store.one()
    await store.release(StoreError("the disk is full", "the disk is full"))
    await rig.turn()
    assert not stopping.done()
    await store.one()  # the engine tries again after a moment
    await store.release()
    assert await stopping
    assert (await outcome(rig, call.id))[0] == "ABORTED"
    await rig.finish_all()


@run
async def test_an_execution_whose_end_is_written_is_told_with_its_output_while_its_run_is_still_there(rig):
    control, call = ExecutionControl(rig.composer.workflows, rig.store), rig.call("two")
    await rig.composer.accept(call)
    await rig.running()
    executions = rig.composer.workflows.executions
    lingering = await executions.load("guest", call.id)
    began = lingering.machine.root
    await rig.finish(b'{"n":1}')
    await rig.finish(b'{"n":2}')
    await rig.until_ended(call)
    lingering.machine.root = began

    async def load(*_):
        return lingering

    executions.load = load
    found = await control.describe("guest", call.id)
    assert (found.row.status, found.outcome.output) == ("SUCCEEDED", {"n": 2})
