"""The runtime contract of OpenWhisk, scenario by scenario, with real processes."""

import pytest
from sandboxes import play, result, texts

from aliquot.live.node.base import Status


def test_a_function_is_initialised_once_and_runs_many_times(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(
            "count = 0\ndef main(args):\n    global count\n    count += 1\n    return {'count': count}"
        )
        assert [result(await rig.run(sandbox))["count"] for _ in range(3)] == [1, 2, 3]

    play(tmp_path, scene)


def test_an_exception_is_an_application_error_and_the_sandbox_stays(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    return {'inverse': 1 / args['x']}")
        outcome = await rig.run(sandbox, {"x": 0})
        assert outcome.status == Status.APPLICATION_ERROR
        assert result(outcome) == {"error": "division by zero"}
        assert texts(outcome, "stderr")[-1] == "ZeroDivisionError: division by zero"
        assert result(await rig.run(sandbox, {"x": 2})) == {"inverse": 0.5}

    play(tmp_path, scene)


@pytest.mark.parametrize("value", ["None", "3", "'text'", "True"])
def test_what_is_neither_dictionary_nor_array_is_a_developer_error(tmp_path, value):
    async def scene(rig):
        sandbox = await rig.started(f"def main(args):\n    return {value}")
        outcome = await rig.run_and_lose(sandbox)
        assert outcome.status == Status.DEVELOPER_ERROR
        assert result(outcome) == {"error": "The action did not return a dictionary or array."}

    play(tmp_path, scene)


def test_a_run_that_takes_too_long_is_killed(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    while True: pass")
        outcome = await rig.run_and_lose(sandbox, timeout_ms=100)
        assert outcome.timed_out
        assert result(outcome) == {"error": "The action exceeded its time limits of 100 milliseconds."}

    play(tmp_path, scene)
