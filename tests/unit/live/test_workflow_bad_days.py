"""Bad days of executions: clocks that are set, answers at the instant of a timeout, and a prune that is interrupted.

Run as a program (`PYTHONPATH=tests/support python tests/unit/live/test_workflow_bad_days.py DIRECTORY`), this file
prunes a store until it is killed.
"""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from places import SUPPORT
from rig import Rig
from stored import activation, opened

from aliquot.live.invocations import rate_limits
from aliquot.live.invocations.workflows import workflows as workflows_module
from aliquot.live.invocations.workflows.control import ExecutionControl, TaskAnswer
from aliquot.live.invocations.workflows.records import unpack_log
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.base import Retention
from aliquot.live.store.executions import ExecutionChange, ExecutionEnd, ExecutionRow
from aliquot.live.store.records import Action, Exec
from aliquot.testing.waiting import wait_until_async
from aliquot.workflow.errors import EventRefusedError
from aliquot.workflow.interpreter import TaskEnded, TimerDue
from aliquot.workflow.values import MAX_VALUE_SIZE

EXECUTIONS = 60
OWNERS = (
    "SELECT id FROM execution",
    "SELECT id FROM activation",
    "SELECT execution FROM execution_event",
    "SELECT execution FROM execution_object",
)
NOTHING = Retention(activations_bytes=0, activations_min_bytes=0)


def workflow(name, **state):
    code = json.dumps({"StartAt": "A", "States": {"A": {**state, "End": True}}})
    return Action("guest", name, "0.0.1", Exec("workflow", code), revision=f"of {name}")


ACTIONS = (
    Action("guest", "a", "0.0.1", Exec("python:3.11", "def main(args): return args")),
    workflow("sleep", Type="Wait", Seconds=3600),
    workflow("one", Type="Task", Resource="a"),
    workflow(
        "stubborn",
        Type="Task",
        Resource="a",
        Retry=[{"ErrorEquals": ["Function.Lost", "Function.Crashed"], "IntervalSeconds": 1, "MaxAttempts": 2}],
    ),
    workflow("ask", Type="Task", Resource="a.waitForTaskToken", TimeoutSeconds=1000),
)


# --- the clock ------------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_while_the_server_runs_moves_no_timer(monkeypatch):
    clock = rate_limits.steady_clock()
    before = clock()
    for wrong in (0.0, 4e9):
        monkeypatch.setattr(time, "time", lambda wrong=wrong: wrong)
        assert before <= clock() < before + 60


@pytest.mark.parametrize(("hours", "status"), [(-2, "RUNNING"), (0, "RUNNING"), (2, "SUCCEEDED")])
def test_a_clock_that_was_set_between_two_servers_delays_a_timer_or_makes_it_due(tmp_path, monkeypatch, hours, status):
    async def first():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            await rig.composer.accept(rig.call("sleep", 7))
            rig.composer.workflows.executions.stop()

    async def second():
        monkeypatch.setattr(workflows_module, "steady_clock", lambda: lambda: time.time() + 3600 * hours)
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            executions = rig.composer.workflows.executions
            assert await executions.start() == 1
            row = await wait_until_async(
                lambda: rig.store.execution("guest", f"{7:032x}"),
                lambda row: row.status == status,
                what=f"the status {status}",
            )
            assert len(executions.engine.timers) == (row.status == "RUNNING")
            executions.stop()

    asyncio.run(first())
    asyncio.run(second())


# --- answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer_first", [True, False])
def test_an_answer_at_the_instant_of_the_timeout_counts_or_is_refused(tmp_path, monkeypatch, answer_first):
    hours = [0]
    monkeypatch.setattr(workflows_module, "steady_clock", lambda: lambda: time.time() + 3600 * hours[0])

    async def whole():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            control = ExecutionControl(rig.composer.workflows, rig.store)
            call = rig.call("ask")
            await rig.composer.accept(call)
            await rig.running()
            (task,) = [one for one in rig.service.calls.values() if one.task is not None]
            engine = rig.composer.workflows.executions.engine
            run = engine.runs[call.id]
            hours[0] = 1  # the timeout is due from now on
            answering = asyncio.ensure_future(control.answer("guest", task.task.token, TaskAnswer("yes")))
            if answer_first:
                await asyncio.sleep(0)
            engine.post(run, TimerDue())
            try:
                accepted = await answering
            except EventRefusedError:
                accepted = False
            await rig.until_ended(call)
            row = await rig.store.execution("guest", call.id)
            assert accepted == answer_first
            assert row.status == ("SUCCEEDED" if accepted else "FAILED")
            assert accepted or json.loads(row.outcome)["error"] == "States.Timeout"
            await rig.finish_all()

    asyncio.run(whole())


# --- tasks ----------------------------------------------------------------------------------------------------


def test_a_sandbox_or_a_device_that_is_lost_in_a_task_is_retried(tmp_path):
    async def whole():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            call = rig.call("stubborn")
            await rig.composer.accept(call)
            rig.node.lose(await rig.running())
            sandbox = await rig.running()
            rig.node.running.pop(sandbox)
            rig.node.listener.sandbox_lost(sandbox, Outcome(Status.INTERNAL_ERROR, b'{"error":"no device"}', 0.001))
            await rig.finish(b'{"n":3}')
            await rig.until_ended(call)
            assert (await rig.record(call.id))["result"] == {"n": 3}
            stored = await rig.store.stored_execution("guest", call.id)
            ends = [one for _, one in unpack_log(stored.events) if isinstance(one, TaskEnded)]
            assert [one.error for one in ends] == ["Function.Crashed", "Function.Lost", None]
            assert len({one.task for one in ends}) == 3

    asyncio.run(whole())


@pytest.mark.parametrize(("size", "error"), [(MAX_VALUE_SIZE, None), (MAX_VALUE_SIZE + 1, "States.DataLimitExceeded")])
def test_a_result_just_over_the_limit_is_the_error_of_its_state(tmp_path, size, error):
    async def whole():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            call = rig.call("one")
            await rig.composer.accept(call)
            await rig.finish(b'{"x":"' + b"y" * (size - 8) + b'"}')
            await rig.until_ended(call)
            outcome = json.loads((await rig.store.execution("guest", call.id)).outcome)
            assert outcome.get("error") == error

    asyncio.run(whole())


# --- prune ----------------------------------------------------------------------------------------------------


async def fill(folder):
    """Write executions that have ended, each with events, objects and a record."""
    async with opened(folder) as store:
        for number in range(EXECUTIONS):
            name = f"{number:032x}"
            record = activation(number)
            row = ExecutionRow(name, record.owner, "flow", "", f"digest {number % 7}", "RUNNING", 1, None, b"info")
            await store.write_execution(
                ExecutionChange(name, record.owner, 0, b"event", row, b"definition", objects=(("o", b"x" * 10_000),))
            )
            end = ExecutionEnd("FAILED", b"{}", record, 10_005)
            await store.write_execution(ExecutionChange(name, record.owner, 1, b"event", end=end))


async def prune(folder):
    async with opened(folder) as store:
        os.write(1, b"begins\n")
        await store.prune(NOTHING, now_ms=None)


def test_an_interrupted_prune_leaves_executions_whole_or_not_at_all(tmp_path):
    asyncio.run(fill(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    left = EXECUTIONS
    for _ in range(4):
        victim = subprocess.Popen([sys.executable, __file__, str(tmp_path)], env=environment, stdout=subprocess.PIPE)
        assert victim.stdout.readline() == b"begins\n"
        time.sleep(random.uniform(0, 0.01))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection:
            ids = [{one for (one,) in connection.execute(query)} for query in OWNERS]
            (definitions,) = connection.execute("SELECT count(*) FROM definition").fetchone()
            (used,) = connection.execute("SELECT count(DISTINCT digest) FROM execution").fetchone()
        assert all(found == ids[0] for found in ids)
        assert definitions == used
        assert len(ids[0]) <= left
        left = len(ids[0])
    asyncio.run(prune(tmp_path))
    with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection:
        assert connection.execute("SELECT count(*) FROM execution_object").fetchone() == (0,)


if __name__ == "__main__":
    asyncio.run(prune(Path(sys.argv[1])))
