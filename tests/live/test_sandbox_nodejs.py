"""The runtime contract for Node.js functions, where it differs and where it must not."""

import re

import pytest
from sandboxes import isolation, needs_nodejs, play, result, texts, with_and_without_walls, zipped

from aliquot.live.node.base import Status

pytestmark = needs_nodejs

KIND = {"kind": "nodejs:20"}
NO_INIT = "Initialization has failed due to: "


@with_and_without_walls
def test_it_is_initialised_once_and_runs_many_times(tmp_path, walls):
    code = """
        let count = 0;
        console.log('importing', process.env.SETTING);
        function main(args) {
          console.log('żółć');
          console.error('oops');
          return { count: ++count, text: args.text, id: process.env.__OW_ACTIVATION_ID };
        }
    """

    async def scene(rig):
        rig.launch(code, env={"SETTING": "early"}, **KIND)
        what, sandbox, logs = await rig.next()
        assert what == "started", logs
        assert [line[31:] for line in logs] == ["stdout: importing early"]
        for count in (1, 2):
            outcome = await rig.run(sandbox, {"text": "🦀"}, env={"__OW_ACTIVATION_ID": f"id {count}"})
            assert result(outcome) == {"count": count, "text": "🦀", "id": f"id {count}"}
            assert (texts(outcome), texts(outcome, "stderr")) == (["żółć"], ["oops"])

    play(tmp_path, scene, isolation=isolation(walls))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("exports.main = async (args) => ({ sum: args.x + 1 })", {"sum": 2}),
        ("const main = (args) => new Promise((done) => setTimeout(() => done([args.x]), 5))", [1]),
        ("function main() {}", {}),
    ],
)
def test_promises_are_awaited_and_nothing_is_an_empty_object(tmp_path, code, expected):
    async def scene(rig):
        outcome = await rig.run(await rig.started(code, **KIND), {"x": 1})
        assert (outcome.status, result(outcome)) == (Status.SUCCESS, expected)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("function main() { throw new Error('no'); }", "An error has occurred: Error: no"),
        ("function main() { return 3; }", "The action did not return a dictionary."),
        ("function main() { return null; }", "The action did not return a dictionary."),
        ("function main() { process.exit(0); }", None),
        ("function main() { setTimeout(() => { throw new Error('late'); }); return new Promise(() => {}); }", None),
        ("function main() { const a = {}; a.a = a; return a; }", "The action's result is not valid JSON: "),
    ],
)
def test_an_exception_an_exit_or_a_scalar_is_a_developer_error_and_the_sandbox_is_spent(tmp_path, code, error):
    async def scene(rig):
        outcome = await rig.run_and_lose(await rig.started(code, **KIND))
        assert outcome.status == Status.DEVELOPER_ERROR
        expected = error or "The action did not produce a valid response and exited unexpectedly."
        assert result(outcome)["error"].startswith(expected)

    play(tmp_path, scene)


def test_a_rejected_promise_is_an_application_error_and_the_sandbox_stays(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("const main = (args) => Promise.reject(args.why)", **KIND)
        for why in ({"code": 3}, "text"):
            outcome = await rig.run(sandbox, {"why": why})
            assert (outcome.status, result(outcome)) == (Status.APPLICATION_ERROR, {"error": why})

    play(tmp_path, scene)


def test_an_application_error_keeps_only_its_error(tmp_path):
    async def scene(rig):
        outcome = await rig.run(await rig.started("const main = () => ({ error: 'e', more: 1 })", **KIND))
        assert (outcome.status, result(outcome)) == (Status.APPLICATION_ERROR, {"error": "e"})

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("function main( {", f"{NO_INIT}.*SyntaxError: Unexpected token"),
        ("function other() {}", f"{NO_INIT}Action entrypoint 'main' is not a function."),
        ("require('nonesuch')", f"{NO_INIT}Error: Cannot find module 'nonesuch'"),
        ("throw 'a word'", f"{NO_INIT}a word$"),
        ("  ", "Missing main/no code to execute."),
        ("process.exit(1)", "The action did not initialize and exited unexpectedly."),
    ],
)
def test_code_that_does_not_load_is_a_developer_error_that_tells_the_caller_why(tmp_path, code, answer):
    async def scene(rig):
        outcome = await rig.not_started(code, **KIND)
        assert outcome.status is Status.DEVELOPER_ERROR
        assert re.match(answer, result(outcome)["error"], re.DOTALL)

    play(tmp_path, scene)


def test_time_is_limited_in_init_and_in_run(tmp_path):
    async def scene(rig):
        assert (await rig.not_started("for (;;) {}", timeout_ms=500, **KIND)).timed_out
        assert (
            await rig.run_and_lose(await rig.started("function main() { for (;;) {} }", **KIND), timeout_ms=100)
        ).timed_out

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "files",
    [
        {"index.js": "exports.main = () => ({ cwd: process.cwd(), text: require('fs').readFileSync('data', 'utf8') })"},
        {
            "package.json": '{"main": "lib/entry.js"}',
            "lib/entry.js": "exports.main = () => require('./other').answer();",
            "lib/other.js": "exports.answer = () => ({ cwd: process.cwd(), text: 'kept' });",
        },
        {
            "package.json": '{"type": "module", "main": "entry.js"}',
            "entry.js": "export const main = () => ({ cwd: process.cwd(), text: 'kept' });",
        },
    ],
    ids=["index", "package", "module"],
)
def test_a_zip_is_a_package(tmp_path, files):
    async def scene(rig):
        sandbox = await rig.started(zipped({**files, "data": "kept"}), binary=True, **KIND)
        assert result(await rig.run(sandbox)) == {"cwd": "/tmp/action", "text": "kept"}  # noqa: S108

    if not isolation(walls=True).mount:
        pytest.skip("the scratch directory is /tmp only with a mount namespace")
    play(tmp_path, scene)


def test_a_zip_without_a_package_is_a_developer_error(tmp_path):
    async def scene(rig):
        outcome = await rig.not_started(zipped({"other.js": ""}), binary=True, **KIND)
        why = "Zipped actions must contain either package.json or index.js at the root."
        assert result(outcome)["error"] == NO_INIT + why
        assert why in texts(outcome, "stderr")[0]
        damaged = await rig.not_started("bm90IGEgemlw", binary=True, **KIND)
        assert result(damaged)["error"] == f"{NO_INIT}There was an error uncompressing the action archive."

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("main", "files"),
    [
        ("other.answer", {"other.js": "exports.answer = () => ({ ok: true });"}),
        ("lib/deep/other.answer", {"lib/deep/other.js": "exports.answer = () => ({ ok: true });"}),
        ("other.api.answer", {"other.js": "exports.api = { answer: () => ({ ok: true }) };"}),
        ("other.answer", {"other.mjs": "", "other/index.js": "exports.answer = () => ({ ok: true });"}),
        ("api.answer", {"index.js": "exports.api = { answer: () => ({ ok: true }) };"}),
    ],
)
def test_main_may_name_a_file_of_the_zip(tmp_path, main, files):
    async def scene(rig):
        sandbox = await rig.started(zipped(files), binary=True, main=main, **KIND)
        assert result(await rig.run(sandbox)) == {"ok": True}

    play(tmp_path, scene)


def test_garbage_can_be_collected_and_init_parameters_are_no_arguments(tmp_path):
    async def scene(rig):
        code = "const main = (args) => { global.gc(); return { args, mine: process.env.mine }; }"
        sandbox = await rig.started(code, env={"mine": "1"}, init_names=("mine",), **KIND)
        assert result(await rig.run(sandbox, {"mine": 2, "other": 3})) == {"args": {"other": 3}, "mine": "1"}

    play(tmp_path, scene)


def test_a_big_payload_and_result_pass(tmp_path):
    async def scene(rig):
        payload = {"text": "x" * 5_000_000}
        assert result(await rig.run(await rig.started("const main = (args) => args", **KIND), payload)) == payload

    play(tmp_path, scene)


def test_too_much_memory_is_told_apart(tmp_path):
    async def scene(rig):
        hog = await rig.started("const a = []; function main() { for (;;) a.push(Buffer.alloc(1e7, 1)); }", **KIND)
        outcome = await rig.run_and_lose(hog)
        assert result(outcome) == {"error": "The action exhausted its memory and was aborted."}

    from aliquot.live.node.cgroups import NodeCgroups

    groups = NodeCgroups("aliquot-test")
    groups.close()
    if not groups.version:
        pytest.skip("only control groups tell it apart from other crashes")
    play(tmp_path, scene)


def test_an_unknown_kind_says_what_there_is(tmp_path):
    async def scene(rig):
        outcome = await rig.not_started("x", kind="cobol:85")
        assert "runs no functions of the kind 'cobol:85'; it knows kernel, nodejs, python" in result(outcome)["error"]

    play(tmp_path, scene)
