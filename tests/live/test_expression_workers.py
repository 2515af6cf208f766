"""Expressions are evaluated beside the event loop: bounded, fair between tenants, and without harm to the server."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from aliquot.live.expressions.workers import ExpressionWorkers
from aliquot.testing.waiting import wait_until
from aliquot.workflow.interpreter import Evaluate, Execution, Started
from aliquot.workflow.language import checked_machine

TIMEOUT_S = 60
REGEX = "$match($states.input, /(a+)+$/)"  # takes minutes for "aaaa…!"
EVIL = "a" * 40 + "!"


def definition(expression):
    return {
        "QueryLanguage": "JSONata",
        "StartAt": "S",
        "States": {"S": {"Type": "Pass", "Output": f"{{% {expression} %}}", "End": True}},
    }


def command_of(raw, value):
    """Return the Evaluate command of a machine that has one state."""
    (command,) = Execution(checked_machine(raw)).step([Started("one", value)], 1_700_000_000)
    assert isinstance(command, Evaluate)
    return command


class Evaluations:
    """Asks the workers, and awaits the answers."""

    def __init__(self):
        self.pids = []
        self.workers = ExpressionWorkers(self.pids.append)

    async def run(self, expression, value=None, tenant="guest"):
        raw = definition(expression)
        future = asyncio.get_running_loop().create_future()
        text = json.dumps(raw)
        self.workers.evaluate(tenant, text, text.encode(), command_of(raw, value), future.set_result)
        return await asyncio.wait_for(future, TIMEOUT_S)


@asynccontextmanager
async def evaluations():
    made = Evaluations()
    try:
        yield made
    finally:
        await made.workers.stop()


def in_loop(scene):
    async def run():
        async with evaluations() as made:
            await scene(made)

    asyncio.run(run())


def test_a_value_comes_back_and_an_error_names_its_reason():
    async def scene(made):
        assert (await made.run("$sum([1..4])")).value == {"output": 10}
        failed = await made.run("$error('why not')")
        assert failed.error == "States.QueryEvaluationError"
        assert "why not" in failed.cause
        assert len(made.pids) == 1

    in_loop(scene)


def test_a_regular_expression_that_takes_minutes_is_ended_and_others_go_on():
    async def scene(made):
        evil = asyncio.ensure_future(made.run(REGEX, EVIL, "evil"))
        await made.run("$uppercase('b') & $join(['a'])")
        told = await evil
        assert told.error == "States.QueryEvaluationError"
        assert "processor time" in told.cause
        assert (await made.run("$sum([1..4])")).value == {"output": 10}
        assert len(made.pids) == 1, "the host went on"

    in_loop(scene)


def test_many_evil_expressions_of_one_tenant_wait_behind_each_other_alone():
    async def scene(made):
        await made.run("$sum([1])")
        evil = [asyncio.ensure_future(made.run(REGEX, EVIL, "evil")) for _ in range(20)]
        for number in range(20):
            assert (await made.run(f"$sum([{number}..{number}])")).value == {"output": number}
        assert sum(future.done() for future in evil) <= 2
        for future in evil:
            future.cancel()

    in_loop(scene)


def test_too_much_memory_and_too_large_values_are_the_error_of_the_state():
    async def scene(made):
        many = "$map([1..1000], function($x) { $join([$states.input, $string($x)]) })"
        told = await made.run(f"$count({many})", "x" * 900_000)
        assert "memory" in told.cause  # a slow machine may meet the bound on time first, which names both
        long = await made.run("$pad('', 900000, 'x') & $pad('', 900000, 'x')")
        assert long.error == "States.DataLimitExceeded"
        parts = ", ".join(f"'{name}': $states.input" for name in "abcdef")
        told = await made.run(f"$merge([{{ {parts} }}])", "é" * 900_000)
        assert told.error == "States.DataLimitExceeded"
        assert (await made.run("$sum([1..4])")).value == {"output": 10}

    in_loop(scene)


def test_a_host_that_was_killed_is_started_again():
    async def scene(made):
        await made.run("$sum([1])")
        os.kill(made.pids[0], signal.SIGKILL)
        told = await made.run(REGEX, EVIL)  # the worker of the first host ends, and another is needed
        assert told.error == "States.QueryEvaluationError"
        assert len(made.pids) == 2

    in_loop(scene)


def test_a_definition_is_checked_with_all_its_mistakes():
    async def scene(made):
        wrong = await made.workers.check("guest", json.dumps({"StartAt": "A", "States": {"B": {}}}).encode())
        assert not wrong.is_valid
        assert {complaint.field for complaint in wrong.complaints} >= {"StartAt", "Type"}
        assert "cannot be read" in str((await made.workers.check("guest", b"{")).complaints[0])
        task = {"Type": "Task", "Resource": "shrink", "End": True}
        right = await made.workers.check("guest", json.dumps({"StartAt": "A", "States": {"A": task}}).encode())
        assert right.is_valid
        assert right.resources == {"shrink": ("A",)}

    in_loop(scene)


def test_a_definition_that_takes_seconds_to_check_delays_no_expression():
    async def scene(made):
        slow = definition("$states.input" + ".a" * 4000)  # compiling it takes a second
        checked = asyncio.ensure_future(made.workers.check("evil", json.dumps(slow).encode()))
        await asyncio.sleep(0)
        assert (await made.run("$sum([1..4])")).value == {"output": 10}
        assert not checked.done()
        assert (await asyncio.wait_for(checked, TIMEOUT_S)).is_valid

    in_loop(scene)


def test_the_server_does_not_import_the_package_whose_import_changes_the_recursion_limit():
    code = """
import sys
from aliquot.live.expressions.workers import ExpressionWorkers
from aliquot.workflow.interpreter import Execution, Started
from aliquot.workflow.language import checked_machine
raw = {"QueryLanguage": "JSONata", "StartAt": "A", "States": {
    "A": {"Type": "Pass", "Output": "{% $states.input.n + 1 %}", "Next": "B"},
    "B": {"Type": "Pass", "Output": "{% $sum([1..4]) %}", "End": True}}}
(command,) = Execution(checked_machine(raw)).step([Started("one", {"n": 1})], 1.0)
print(command.state, command.input, "jsonata" in sys.modules, sys.getrecursionlimit())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["B", "2", "False", "1000"]


KILLED = """
import asyncio, sys
sys.path[:0] = {path!r}
from test_expression_workers import EVIL, REGEX, Evaluations

async def scene():
    made = Evaluations()
    await made.run("$sum([1..4])")
    evil = asyncio.ensure_future(made.run(REGEX, EVIL))
    await asyncio.sleep(0.1)
    print(made.pids[0], flush=True)
    await evil
    await asyncio.sleep(60)

asyncio.run(scene())
"""


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_server_leaves_no_process_behind():
    code = KILLED.format(path=[str(Path(__file__).parent)])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        host = psutil.Process(int(server.stdout.readline()))
        processes = [host, *host.children()]
        server.kill()
    assert len(processes) > 1
    wait_until(
        lambda: [one.pid for one in processes if is_alive(one)],
        lambda left: not left,
        what="the end of the host and its workers",
    )


def test_a_long_worker_has_a_lower_priority_than_other_sessions():
    program = (
        "import os\n"
        "from pathlib import Path\n"
        "from aliquot.live.expressions.process import NICENESS, lower_priority\n"
        "lower_priority()\n"
        "grouped = Path('/proc/self/autogroup')\n"
        "assert os.nice(0) == NICENESS and os.getsid(0) == os.getpid()\n"
        "assert not grouped.exists() or grouped.read_text().split()[-1] == str(NICENESS)\n"
    )
    child = (
        f"import os\nchild = os.fork()\nif child == 0:\n    exec({program!r})\n    os._exit(0)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )  # a leader of a group, such as the program itself, cannot begin a session
    assert subprocess.run([sys.executable, "-c", child], check=False, timeout=60).returncode == 0
