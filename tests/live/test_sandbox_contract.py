"""The runtime contract of OpenWhisk, scenario by scenario, with real processes."""

import json
import os
import re
from types import SimpleNamespace

import pytest
from sandboxes import BROKEN, ECHO, isolation, play, result, texts, with_and_without_walls

from aliquot.live.node.base import Status
from aliquot.live.node.logs import MISSING

FAILED = {"error": "Cannot start action. Check logs for details."}
EXITED = {"error": "The action did not produce a valid response and exited unexpectedly."}
EXITED_IN_INIT = {"error": "The action did not initialize and exited unexpectedly."}
OUT_OF_MEMORY = {"error": "The action exhausted its memory and was aborted."}


@with_and_without_walls
def test_a_function_is_initialised_once_and_runs_many_times(tmp_path, walls):
    async def scene(rig):
        code = "count = 0\ndef main(args):\n    global count\n    count += 1\n    return {'count': count}"
        sandbox = await rig.started(code)
        assert [result(await rig.run(sandbox))["count"] for _ in range(3)] == [1, 2, 3]

    play(tmp_path, scene, isolation=isolation(walls))


@pytest.mark.parametrize(("code", "main"), [("", "main"), ("   \n", "main")])
def test_nothing_to_execute_is_said(tmp_path, code, main):
    async def scene(rig):
        outcome = await rig.not_started(code, main=main)
        assert outcome.status == Status.DEVELOPER_ERROR
        assert result(outcome) == {"error": "Missing main/no code to execute."}

    play(tmp_path, scene)


def test_an_entry_point_without_a_name_is_main(tmp_path):
    async def scene(rig):
        assert result(await rig.run(await rig.started(ECHO, main=""), {"a": 1})) == {"a": 1}

    play(tmp_path, scene)


def test_code_that_does_not_compile_is_a_developer_error_that_shows_where(tmp_path):
    async def scene(rig):
        outcome = await rig.not_started("def main(args):\n    return {\n")
        assert outcome.status == Status.DEVELOPER_ERROR
        assert result(outcome) == BROKEN
        said = texts(outcome, "stderr")
        assert said[0].strip() == 'File "f.py", line 2'
        assert said[-2] == "SyntaxError: '{' was never closed"
        assert said[-1] == MISSING

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def other(args):\n    return {}", "The code defines no function 'main'."),
        ("main = 3", "The code defines no function 'main'."),
        ("import nonesuch\ndef main(args):\n    return {}", "ModuleNotFoundError: No module named 'nonesuch'"),
    ],
)
def test_code_that_does_not_load_is_a_developer_error(tmp_path, code, said):
    async def scene(rig):
        outcome = await rig.not_started(code)
        assert (outcome.status, result(outcome)) == (Status.DEVELOPER_ERROR, FAILED)
        assert said in texts(outcome, "stderr")

    play(tmp_path, scene)


def test_another_entry_point_may_be_named(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def handler(args):\n    return {'handled': True}", main="handler")
        assert result(await rig.run(sandbox)) == {"handled": True}

    play(tmp_path, scene)


@with_and_without_walls
def test_an_exception_is_an_application_error_and_the_sandbox_stays(tmp_path, walls):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    return {'inverse': 1 / args['x']}")
        outcome = await rig.run(sandbox, {"x": 0})
        assert outcome.status == Status.APPLICATION_ERROR
        assert result(outcome) == {"error": "division by zero"}
        said = texts(outcome, "stderr")
        assert said[0] == "Traceback (most recent call last):"
        assert said[1] == '  File "f.py", line 2, in main', "our own frames are not shown"
        assert said[-1] == "ZeroDivisionError: division by zero"
        assert result(await rig.run(sandbox, {"x": 2})) == {"inverse": 0.5}

    play(tmp_path, scene, isolation=isolation(walls))


@pytest.mark.parametrize("value", ["None", "3", "'text'", "True"])
def test_what_is_neither_dictionary_nor_array_is_a_developer_error(tmp_path, value):
    async def scene(rig):
        sandbox = await rig.started(f"def main(args):\n    return {value}")
        outcome = await rig.run_and_lose(sandbox)
        assert outcome.status == Status.DEVELOPER_ERROR
        assert result(outcome) == {"error": "The action did not return a dictionary or array."}

    play(tmp_path, scene)


@pytest.mark.parametrize("value", ["{'x': object()}", "{'x': float('nan')}", "{(1, 2): 3}", "[set()]"])
def test_what_is_not_json_is_a_developer_error(tmp_path, value):
    async def scene(rig):
        outcome = await rig.run_and_lose(await rig.started(f"def main(args):\n    return {value}"))
        assert outcome.status == Status.DEVELOPER_ERROR
        assert result(outcome)["error"].startswith("The action's result is not valid JSON: ")

    play(tmp_path, scene)


def test_an_array_is_a_result(tmp_path):
    async def scene(rig):
        outcome = await rig.run(await rig.started("def main(args):\n    return [1, 'two', None]"))
        assert (outcome.status, result(outcome)) == (Status.SUCCESS, [1, "two", None])

    play(tmp_path, scene)


def test_an_application_error_keeps_only_its_error(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    return {'error': {'code': 3}, 'more': 'lost'}")
        outcome = await rig.run(sandbox)
        assert (outcome.status, result(outcome)) == (Status.APPLICATION_ERROR, {"error": {"code": 3}})
        assert (await rig.run(sandbox)).status == Status.APPLICATION_ERROR, "and the sandbox stays"

    play(tmp_path, scene)


@with_and_without_walls
def test_a_run_that_takes_too_long_is_killed(tmp_path, walls):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    print('going', flush=True)\n    while True: pass")
        outcome = await rig.run_and_lose(sandbox, timeout_ms=200)
        assert outcome.timed_out
        assert outcome.status == Status.DEVELOPER_ERROR
        assert result(outcome) == {"error": "The action exceeded its time limits of 200 milliseconds."}
        assert texts(outcome) == ["going"]

    play(tmp_path, scene, isolation=isolation(walls))


def test_an_init_that_takes_too_long_is_killed(tmp_path):
    async def scene(rig):
        await rig.started("def main(args):\n    return {}")  # so that no imports are left to wait for
        outcome = await rig.not_started("while True: pass", timeout_ms=200)
        assert outcome.timed_out
        text = "The action exceeded its time limits of 200 milliseconds during initialization."
        assert result(outcome) == {"error": text}

    play(tmp_path, scene)


@pytest.mark.parametrize("leave", ["import os; os._exit(0)", "import sys; sys.exit(0)", "import sys; sys.exit('bye')"])
def test_leaving_during_a_run_is_a_developer_error(tmp_path, leave):
    async def scene(rig):
        sandbox = await rig.started(f"def main(args):\n    print('last words')\n    {leave}")
        outcome = await rig.run_and_lose(sandbox)
        assert (outcome.status, result(outcome)) == (Status.DEVELOPER_ERROR, EXITED)
        assert texts(outcome) == ["last words"]

    play(tmp_path, scene)


@pytest.mark.parametrize("leave", ["import os; os._exit(0)", "import sys; sys.exit(1)"])
def test_leaving_during_init_is_a_developer_error(tmp_path, leave):
    async def scene(rig):
        outcome = await rig.not_started(leave)
        assert (outcome.status, result(outcome)) == (Status.DEVELOPER_ERROR, EXITED_IN_INIT)

    play(tmp_path, scene)


def test_a_function_that_uses_too_much_memory_is_killed_alone(tmp_path):
    async def scene(rig):
        other = await rig.started(ECHO)
        hog = await rig.started(
            "def main(args):\n    held = [bytes(10_000_000) + b'x' for _ in range(100)]\n    return {}"
        )
        outcome = await rig.run_and_lose(hog)
        assert (outcome.status, result(outcome)) == (Status.DEVELOPER_ERROR, OUT_OF_MEMORY)
        assert result(await rig.run(other, {"a": 1})) == {"a": 1}

    play(tmp_path, scene)


def test_a_memory_error_is_judged_as_one(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    raise MemoryError")
        outcome = await rig.run_and_lose(sandbox)
        assert (outcome.status, result(outcome)) == (Status.DEVELOPER_ERROR, OUT_OF_MEMORY)

    play(tmp_path, scene)


def test_the_environment_is_set_before_the_code_is_imported(tmp_path):
    async def scene(rig):
        code = "import os\nSEEN = os.environ['SETTING']\ndef main(args):\n    return {'seen': SEEN}"
        sandbox = await rig.started(code, env={"SETTING": "früh", "__OW_NAMESPACE": "guest"})
        assert result(await rig.run(sandbox)) == {"seen": "früh"}

    play(tmp_path, scene)


def test_each_run_has_its_own_variables(tmp_path):
    async def scene(rig):
        code = "import os\ndef main(args):\n    return {'id': os.environ['__OW_ACTIVATION_ID'], 'a': os.environ['A']}"
        sandbox = await rig.started(code, env={"A": "of init"})
        for name in ("one", "two"):
            outcome = await rig.run(sandbox, env={"__OW_ACTIVATION_ID": name})
            assert result(outcome) == {"id": name, "a": "of init"}

    play(tmp_path, scene)


@with_and_without_walls
def test_both_streams_are_logged_line_by_line_with_times(tmp_path, walls):
    async def scene(rig):
        code = (
            "import sys, subprocess\nprint('importing')\n"
            "def main(args):\n"
            "    print('one\\ntwo')\n"
            "    print('oops', file=sys.stderr)\n"
            "    subprocess.run(['echo', 'from a child'])\n"
            "    sys.stdout.write('no end of line')\n"
            "    return {}"
        )
        rig.launch(code)
        what, sandbox, logs = await rig.next()
        assert what == "started"
        assert [line[31:] for line in logs] == ["stdout: importing"]
        for _ in range(2):
            outcome = await rig.run(sandbox)
            assert texts(outcome) == ["one", "two", "from a child", "no end of line"]
            assert texts(outcome, "stderr") == ["oops"]
            for line in outcome.logs:
                assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr): ", line)

    play(tmp_path, scene, isolation=isolation(walls))


@with_and_without_walls
def test_every_run_has_its_own_output_whether_it_prints_or_not(tmp_path, walls):
    async def scene(rig):
        code = (
            "import ctypes, os, sys, time\n"
            "def main(args):\n"
            "    if args.get('line'):\n        print(args['line'])\n"
            "    if args.get('part'):\n        sys.stderr.write(args['part'])\n"
            "    if args.get('c'):\n        ctypes.CDLL(None).write(1, args['c'].encode(), len(args['c']))\n"
            "    if args.get('slowly'):\n        os.write(1, args['slowly'].encode())\n        time.sleep(0.2)\n"
            "    return {}"
        )
        sandbox = await rig.started(code)
        for payload in ({}, {"line": "a"}, {}, {"part": "b"}, {"c": "c"}, {}, {"slowly": "d"}, {}, {"line": "e"}):
            outcome = await rig.run(sandbox, payload)
            said = texts(outcome) + texts(outcome, "stderr")
            assert said == list(payload.values())

    play(tmp_path, scene, isolation=isolation(walls))


def test_after_a_silent_run_the_server_does_not_read_its_output(tmp_path, monkeypatch):
    reads = []

    def read(fd: int, size: int) -> bytes:
        reads.append(fd)
        return os.read(fd, size)

    monkeypatch.setattr("aliquot.live.node.logs.os", SimpleNamespace(read=read))

    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    if args:\n        print('x')\n    return {}")
        reads.clear()
        for _ in range(10):
            await rig.run(sandbox)
        assert reads == []
        assert texts(await rig.run(sandbox, {"print": True})) == ["x"]
        assert reads

    play(tmp_path, scene)


def test_logs_are_truncated_at_their_limit(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    print('x' * args['n'])\n    return {}")
        outcome = await rig.run(sandbox, {"n": 5000}, logs_bytes=1000)
        assert texts(outcome, "stderr") == [
            "Logs were truncated because the total bytes size exceeds the limit of 1000 bytes."
        ]
        assert set(texts(outcome)[0]) == {"x"}
        assert sum(map(len, outcome.logs)) < 1200
        assert texts(await rig.run(sandbox, {"n": 3}, logs_bytes=1000)) == ["xxx"], "the next one begins anew"
        assert (await rig.run(sandbox, {"n": 3}, logs_bytes=0)).logs == ()

    play(tmp_path, scene)


def test_unicode_passes_in_and_out_and_into_the_logs(tmp_path):
    text = "żółć 漢字 🦀 \u0000 \u2028"

    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    print(args['text'][:-4])\n    return {'ü': args['text']}")
        outcome = await rig.run(sandbox, {"text": text})
        assert result(outcome) == {"ü": text}
        assert texts(outcome) == [text[:-4]]
        lone = await rig.started("def main(args):\n    print('\\ud800')\n    return {'x': '\\ud800'}")
        assert result(await rig.run(lone)) == {"x": "?"}

    play(tmp_path, scene)


def test_a_big_payload_and_a_big_result_pass(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(ECHO)
        payload = {"text": "x" * 20_000_000}
        assert result(await rig.run(sandbox, payload)) == payload
        assert result(await rig.run(sandbox, {"a": 1})) == {"a": 1}

    play(tmp_path, scene)


def test_a_result_beyond_the_bound_is_an_application_error(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    return {'x': 'y' * args['n']}")
        outcome = await rig.run(sandbox, {"n": 2000})
        assert outcome.status == Status.APPLICATION_ERROR
        said = "The action produced a response that exceeded the allowed length: 2008 > 1000 bytes."
        assert result(outcome)["error"].startswith(said)
        assert (await rig.run(sandbox, {"n": 20})).status == Status.SUCCESS

    play(tmp_path, scene, result_bytes=1000)


def test_a_second_run_at_the_same_time_is_refused(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(ECHO)
        rig.request(sandbox)
        with pytest.raises(ValueError, match="one run at a time"):
            rig.request(sandbox)
        assert (await rig.next())[0] == "finished"

    play(tmp_path, scene)


def test_a_forged_reply_harms_only_the_forger(tmp_path):
    code = (
        "import os, struct\n"
        "def main(args):\n"
        "    body = b'{not json'\n"
        "    os.write(3, struct.pack('<BxxxII', 0, len(body), 0) + body)\n"
        "    return {}"
    )

    async def scene(rig):
        outcome = await rig.run_and_lose(await rig.started(code))
        assert outcome.status == Status.DEVELOPER_ERROR
        assert "did not produce a valid" in result(outcome)["error"]
        json.loads(outcome.result)

    play(tmp_path, scene)
