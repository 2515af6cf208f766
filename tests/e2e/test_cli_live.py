"""The commands that speak to a platform, as people and programs run them."""

import json
import re
import signal

import pytest
from live_platform import QuickPlatform

from aliquot.testing.waiting import wait_until

APP = """
import aliquot
app = aliquot.App("sums")

@app.function(gpu=0.5, gpu_memory="64MiB")
def add(a, b=1):
    print("adding", a, b)
    return a + b

@app.function
def fail():
    raise ValueError("bad luck")
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform")) as platform:
        (platform.folder / "sums.py").write_text(APP)
        (platform.folder / "notes.txt").write_text("neither Python nor JavaScript")
        yield platform


def test_before_the_first_call_commands_say_so(platform):
    for command in (("logs",), ("activation", "list")):
        assert platform.aliquot(*command) == "there are no calls yet; aliquot invoke NAME makes one\n"
    assert platform.aliquot("logs", "--failed") == "no call failed\n"
    assert platform.aliquot("logs", "--json") == ""
    assert "session abc: There is no session 'abc'" in platform.aliquot("session", "end", "abc", code=5)


@pytest.fixture(scope="module")
def deployed(platform):
    platform.aliquot("deploy", "sums.py")
    return platform


def complaint(text):
    """The last line of stderr, as JSON."""
    return json.loads(text.splitlines()[-1])["error"]


def test_an_app_is_deployed_once(platform):
    first = platform.json("deploy", "sums.py")
    again = platform.json("deploy", "sums.py:app")
    assert [one["name"] for one in first] == ["sums.add", "sums.fail"]
    assert [one["changed"] for one in again] == [False, False]
    assert [one["version"] for one in again] == [one["version"] for one in first]
    assert "sums.add 0.0.1 (unchanged)" in platform.aliquot("deploy", "sums.py:sums")


def test_invoke_prints_the_result_and_the_record(deployed):
    assert json.loads(deployed.aliquot("invoke", "sums.add", "-p", "a=2", "-p", "b=3")) == {"value": 5}
    assert json.loads(deployed.aliquot("invoke", "sums.add", "-p", "a=x", "-p", "b=y")) == {"value": "xy"}
    (deployed.folder / "input.json").write_text('{"a": [1], "b": [2]}')
    assert json.loads(deployed.aliquot("invoke", "sums.add", "--json-input", "input.json")) == {"value": [1, 2]}
    assert json.loads(deployed.aliquot("invoke", "sums.add", "--json-input", "-", given='{"a": 1}')) == {"value": 2}
    record = deployed.json("invoke", "sums.add", "--param", "a=1")
    assert record["response"]["result"] == {"value": 2}
    assert {pair["key"] for pair in record["annotations"]} >= {"waitTime", "deviceTime", "device", "policy", "reason"}


def test_a_function_that_fails_ends_with_1_and_says_where_its_output_is(deployed):
    printed = deployed.aliquot("invoke", "sums.fail", code=1)
    assert re.search(r"error: sums\.fail: bad luck; its output: aliquot logs [0-9a-f]{32}", printed)
    error = complaint(deployed.aliquot("invoke", "sums.fail", "--json", code=1))
    assert (error["kind"], error["exit_code"]) == ("function", 1)


def test_no_wait_gives_an_id_whose_logs_can_be_read(deployed):
    activation = deployed.aliquot("invoke", "sums.add", "-p", "a=41", "--no-wait").strip()

    def logs():
        process = deployed.begin("aliquot", "logs", activation)
        return *process.communicate(), process.returncode

    out, err, code = wait_until(logs, lambda found: found[2] != 5, what="the activation's record")
    assert code == 0, err
    assert "sums.add ok" in out
    assert "stdout: adding 41 1" in out


def test_logs_show_the_last_calls_and_follow_new_ones(deployed):
    for number in range(3):
        deployed.aliquot("invoke", "sums.add", "-p", f"a={number}")
    lines = [json.loads(line) for line in deployed.aliquot("logs", "sums.add", "-n", 2, "--json").splitlines()]
    assert [line["logs"][0].split("stdout: ")[1] for line in lines] == ["adding 1 1", "adding 2 1"]
    process = deployed.begin("aliquot", "logs", "--follow", "--last", 0)
    with deployed.repeating("invoke", "sums.add", "-p", "a=99"):
        head, line = process.stdout.readline(), process.stdout.readline()
    assert "sums.add ok" in head
    assert "adding 99 1" in line
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


def test_list_status_and_top_show_what_there_is(deployed):
    names = [action["name"] for action in deployed.json("list")]
    assert {"sums.add", "sums.fail"} <= set(names)
    assert "64 MiB" in deployed.aliquot("list")
    deployed.aliquot("invoke", "sums.add", "-p", "a=1")
    status = deployed.json("status")
    assert {device["name"] for device in status["devices"]} == {"cpu", "host-1", "host-2"}
    flow = next(flow for flow in status["flows"] if flow["function"] == "sums.add")
    assert flow["tenant"] == "guest"
    assert flow["arrivals"] >= 1
    shown = deployed.aliquot("top", "--once")
    for word in ("virtual", "host-1", "sums.add", "warm", "fair_resident"):
        assert word in shown, word
    assert "host-2" in deployed.aliquot("status")


def test_a_plain_action_is_deployed_with_options(platform):
    (platform.folder / "plain.py").write_text("def hello(args):\n    return {'hello': args}\n")
    options = ("--name", "greet", "--main", "hello", "--param", "who=you", "--annotation", "gpu-share=0.25")
    platform.aliquot("deploy", "plain.py", *options, "--memory", "256MiB", "--timeout", "5s")
    assert json.loads(platform.aliquot("invoke", "greet", "-p", "n=1")) == {"hello": {"who": "you", "n": 1}}
    (action,) = [one for one in platform.json("list") if one["name"] == "greet"]
    assert (action["limits"]["memory"], action["limits"]["timeout"]) == (256, 5000)
    assert {"key": "gpu-share", "value": 0.25} in action["annotations"]
    assert platform.json("delete", "greet") == {"deleted": "greet"}
    assert "greet" not in [one["name"] for one in platform.json("list")]


def test_namespaces_are_the_operators(platform):
    key = platform.aliquot("namespace", "create", "lab", "--weight", 2).strip()
    local = {"ALIQUOT_URL": platform.url, "ALIQUOT_KEY": key}
    assert platform.json("list", **local) == []
    (lab,) = [one for one in platform.json("namespace", "list") if one["name"] == "lab"]
    assert lab["weight"] == 2
    said = platform.aliquot("namespace", "set", "lab", "--weight", 3, "--kept-size", "2GiB")
    assert said == (
        "lab: weight 3, calls a minute: any number, at once: any number, fires a minute: any number, kept: 2.0 GiB\n"
    )
    changed = platform.json("namespace", "set", "lab", "--weight", 3, "--concurrent", 5)
    assert (changed["weight"], changed["concurrentInvocations"]) == (3, 5)
    assert platform.json("namespace", "set", "lab", "--concurrent", 0)["concurrentInvocations"] is None
    assert platform.json("namespace", "set", "lab", "--fires-per-minute", 9)["firesPerMinute"] == 9
    assert platform.json("namespace", "set", "lab", "--kept-size", "2MiB")["keptBytes"] == 2 * 2**20
    new = platform.json("namespace", "rotate-key", "lab")["key"]
    assert complaint(platform.aliquot("list", "--json", code=4, **local))["kind"] == "key_refused"
    assert platform.json("list", **{**local, "ALIQUOT_KEY": new}) == []
    assert "operator's key" in platform.aliquot("status", code=2, **{**local, "ALIQUOT_KEY": new})
    platform.aliquot("namespace", "delete", "lab", "--yes")
    platform.aliquot("list", code=4, **{**local, "ALIQUOT_KEY": new})


@pytest.mark.parametrize(
    ("arguments", "code", "complaint_"),
    [
        (("invoke", "sums.ad"), 5, "there is no function sums.ad; did you mean sums.add?"),
        (("invoke", "add"), 5, "there is no function add; did you mean sums.add?"),
        (("invoke", "zebra"), 5, "there is no function zebra; `aliquot list` lists all"),
        (("delete", "zebra", "--yes"), 5, "there is no function zebra"),
        (("logs", "zebra"), 5, "there is no function zebra"),
        (("logs", "0" * 32), 5, f"activation {'0' * 32}: it does not exist"),
        (("namespace", "set", "nobody", "--weight", "2"), 5, "there is no namespace nobody; there are guest"),
        (("namespace", "create", "guest"), 6, "namespace guest exists already"),
        (("namespace", "set", "guest"), 2, "nothing to change; give --weight, --per-minute, --concurrent"),
        (("namespace", "set", "guest", "--weight", "-1"), 6, "weight: it takes a number"),
        (("invoke", "sums.add", "-p", "a"), 2, "--param: 'a' is not of the form name=value"),
        (("invoke", "sums.add", "--json-input", "no.json"), 2, "--json-input: no.json cannot be read"),
        (("invoke", "sums.add", "--json-input", "sums.py"), 2, "--json-input: sums.py is not JSON"),
        (("deploy", "nothing.py"), 2, "nothing.py: there is no such file"),
        (("deploy", "sums.py:other"), 2, "sums.py has no app other; it has app"),
        (
            ("deploy", "sums.py:app", "--memory", "1GiB"),
            2,
            "--memory: sums.py:app is an app; its functions' settings are in its file",
        ),
        (
            ("deploy", "notes.txt"),
            2,
            "--kind: the ending of notes.txt does not tell; it takes python:3.11 or nodejs:20",
        ),
        (("deploy", "broken.py"), 2, "broken.py cannot be imported here: ZeroDivisionError: division by zero (line 2)"),
        (("deploy", "empty.py"), 2, "empty.py defines no app; it takes a line such as: app = aliquot.App('empty')"),
        (("list", "--data", "nowhere"), 3, "no platform is known: there is no nowhere/local.json"),
    ],
)
def test_mistakes_are_named_with_what_to_do(deployed, arguments, code, complaint_):
    folder = deployed.folder
    (folder / "broken.py").write_text("import aliquot\n1 / 0\n")
    (folder / "empty.py").write_text("import aliquot\n")
    error = complaint(deployed.aliquot(*arguments, "--json", code=code))
    assert complaint_ in error["message"]
    assert not re.match(r"(.+): \1\b", error["message"]), "the thing is named once"
    assert error["exit_code"] == code


def test_people_get_a_line_instead_of_json(deployed):
    printed = deployed.aliquot("invoke", "sums.ad", code=5)
    assert printed == "error: there is no function sums.ad; did you mean sums.add?\n"


def test_a_platform_that_is_gone_is_said_so(platform, tmp_path):
    (tmp_path / "local.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "key": platform.key}))
    printed = platform.aliquot("list", "--data", tmp_path, code=3)
    assert f"no platform answers at http://127.0.0.1:9 (from {tmp_path}/local.json)" in printed
    assert "aliquot up" in printed


def test_wrong_options_are_json_too(platform):
    assert complaint(platform.aliquot("list", "--jsonn", "--json", code=2))["kind"] == "usage"
    assert "No such option" in platform.aliquot("list", "--jsonn", code=2)


def test_the_shell_completes_functions(deployed):
    done = deployed.aliquot(_ALIQUOT_COMPLETE="complete_bash", COMP_WORDS="aliquot invoke sums.", COMP_CWORD="2")
    assert done.split() == ["sums.add", "sums.fail"]


def test_the_doctor_says_what_the_machine_offers(platform):
    findings = platform.json("doctor")
    assert {"python", "Landlock", "control groups", "disk"} <= {finding["name"] for finding in findings}
    shown = platform.aliquot("doctor")
    for finding in findings:
        assert finding["name"] in shown
        assert finding["ok"] or finding["consequence"] in shown
    platform.aliquot("doctor", "--strict", code=0 if all(finding["ok"] for finding in findings) else 1)


def test_the_functions_of_an_app_are_deleted_together_and_so_are_all(platform):
    platform.aliquot("deploy", "sums.py")
    (platform.folder / "plain.py").write_text("def main(args):\n    return args\n")
    platform.aliquot("action", "create", "plain", "plain.py")
    assert "of apps there are sums" in platform.aliquot("delete", "--app", "tiny", "--yes", code=5)
    assert "give exactly one of them" in platform.aliquot("delete", "plain", "--all", "--yes", code=2)
    assert "Aborted" in platform.run("aliquot", "delete", "--all", given="n\n", code=1)
    assert len(platform.json("list")) == 3
    assert platform.json("delete", "--app", "sums", "--yes") == {"deleted": ["sums.add", "sums.fail"]}
    assert platform.json("delete", "--all", "--yes") == {"deleted": ["plain"]}
    assert "there are no functions" in platform.aliquot("delete", "--all", "--yes")
