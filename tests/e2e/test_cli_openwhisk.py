"""The commands that have an OpenWhisk twin, as people who know `wsk` run them."""

import json
import re
import signal
import stat
import time
import zipfile

import pytest
from live_platform import QuickPlatform

ECHO = "def main(args):\n    print('echoing')\n    return args\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform")) as platform:
        (platform.folder / "echo.py").write_text(ECHO)
        platform.aliquot("action", "create", "echo", "echo.py")
        yield platform


def complaint(text):
    return json.loads(text.splitlines()[-1])["error"]["message"]


def value_of(pairs, key):
    return {pair["key"]: pair.get("value") for pair in pairs}[key]


def invoke(platform, name, *arguments):
    return json.loads(platform.aliquot("invoke", name, *arguments))


# --- actions ---------------------------------------------------------------------------------------------


def test_an_action_is_created_with_all_that_can_be_said_of_it(platform):
    options = (
        "-p",
        "who",
        "you",
        "-p",
        "n",
        -1,
        "-a",
        "weight",
        2,
        "--timeout",
        "5s",
        "--memory",
        "256",
        "--logs",
        "1MiB",
    )
    shown = platform.aliquot("action", "create", "full", "echo.py", *options, "--web", "true")
    assert shown.startswith("function full 0.0.1\n")
    assert f"{platform.url}/api/v1/web/guest/default/full" in shown
    entity = platform.json("action", "get", "full")
    assert entity["limits"] | {"timeout": 5000, "memory": 256, "logs": 1, "concurrency": 1} == entity["limits"]
    assert {pair["key"]: pair["value"] for pair in entity["parameters"]} == {"who": "you", "n": -1}
    assert value_of(entity["annotations"], "web-export") is True
    assert value_of(entity["annotations"], "raw-http") is False
    assert value_of(entity["annotations"], "final") is True
    assert "code" not in entity["exec"]
    assert platform.aliquot("action", "get", "full", "--url").strip().endswith("/web/guest/default/full")
    people = platform.aliquot("action", "get", "full")
    assert re.search(r"parameter who +you *\n", people)
    assert re.search(r"timeout +5000 *\n", people)
    platform.aliquot("delete", "full", "--yes")


def test_create_refuses_a_name_that_is_taken_and_update_changes_only_what_is_given(platform):
    platform.aliquot("action", "create", "twice", "echo.py", "-p", "a", 1, "-a", "note", "old", "-a", "other", "x")
    assert "resource already exists" in platform.aliquot("action", "create", "twice", "echo.py", code=6)
    assert (
        platform.json("action", "update", "twice", "-a", "note", "new", "--del-annotation", "other")["version"]
        == "0.0.2"
    )
    entity = platform.json("action", "get", "twice")
    assert value_of(entity["parameters"], "a") == 1
    assert value_of(entity["annotations"], "note") == "new"
    assert "other" not in {pair["key"] for pair in entity["annotations"]}
    assert platform.json("action", "delete", "twice") == {"deleted": "twice"}


def test_a_folder_is_zipped_and_its_code_can_be_saved_again(platform):
    folder = platform.folder / "parts"
    folder.mkdir()
    (folder / "__main__.py").write_text("import part\ndef main(args): return {'part': part.NAME}\n")
    (folder / "part.py").write_text("NAME = 'neighbour'\n")
    platform.aliquot("action", "create", "parts", "parts")
    assert invoke(platform, "parts") == {"part": "neighbour"}
    platform.aliquot("action", "get", "parts", "--save", "saved.zip")
    assert sorted(zipfile.ZipFile(platform.folder / "saved.zip").namelist()) == ["__main__.py", "part.py"]
    platform.aliquot("action", "update", "parts", "saved.zip")
    assert invoke(platform, "parts") == {"part": "neighbour"}
    platform.aliquot("action", "get", "echo", "--save", "saved.py")
    assert (platform.folder / "saved.py").read_text() == ECHO


def test_a_sequence_is_made_of_names(platform):
    entity = platform.json("action", "create", "twofold", "--sequence", "echo, /whisk.system/utils/echo")
    assert entity["exec"] == {"kind": "sequence", "components": ["/guest/echo", "/whisk.system/utils/echo"]}


def test_a_web_secret_is_made_up_or_given(platform):
    shown = platform.aliquot("action", "create", "secret", "echo.py", "--web", "raw", "--web-secure", "true")
    made_up = re.search(r"with the header: X-Require-Whisk-Auth: (\S{32}) *\n", shown)[1]
    entity = platform.json("action", "get", "secret")
    assert value_of(entity["annotations"], "require-whisk-auth") == made_up
    assert value_of(entity["annotations"], "raw-http") is True
    platform.aliquot("action", "update", "secret", "--web-secure", "false", "--web", "no")
    entity = platform.json("action", "get", "secret")
    assert value_of(entity["annotations"], "require-whisk-auth") is False
    assert value_of(entity["annotations"], "web-export") is False


# --- packages --------------------------------------------------------------------------------------------


def test_packages_hand_their_parameters_down_and_bindings_add_their_own(platform):
    platform.aliquot("package", "create", "tools", "-p", "unit", "m", "-p", "n", 1, "--shared")
    platform.aliquot("action", "create", "tools/echo", "echo.py", "-p", "n", 2)
    platform.aliquot("package", "bind", "tools", "mine", "-p", "unit", "km")
    assert invoke(platform, "tools/echo", "-p", "x", "y") == {"unit": "m", "n": 2, "x": "y"}
    assert invoke(platform, "mine/echo") == {"unit": "km", "n": 2}
    package = platform.json("package", "get", "tools")
    assert [one["name"] for one in package["actions"]] == ["echo"]
    assert package["publish"] is True
    assert re.search(r"actions +echo *\n", platform.aliquot("package", "get", "tools"))
    assert "a binding to /guest/tools" in platform.aliquot("package", "list")
    assert [one["name"] for one in platform.json("list", "tools")] == ["echo"]
    assert "tools/echo" in platform.aliquot("list")
    platform.aliquot("package", "update", "tools", "-p", "unit", "cm", "--private")
    assert invoke(platform, "tools/echo") == {"unit": "cm", "n": 2}
    assert platform.json("package", "get", "tools")["publish"] is False
    assert "Package not empty (contains 1 entit" in platform.aliquot("package", "delete", "tools", "--yes", code=6)
    platform.aliquot("package", "delete", "mine", "--yes")
    platform.aliquot("package", "delete", "tools", "--yes", "--force")
    assert platform.json("package", "list") == []


def test_what_others_share_is_listed_and_called(platform):
    names = {one["name"] for one in platform.json("package", "list", "/whisk.system")}
    assert {"utils", "alarms"} <= names
    assert "echo" in {one["name"] for one in platform.json("list", "/whisk.system/utils")}
    assert invoke(platform, "/whisk.system/utils/echo", "-p", "a", '{"b": [1]}') == {"a": {"b": [1]}}
    platform.aliquot("package", "bind", "/whisk.system/utils", "utils")
    assert invoke(platform, "utils/echo", "-p", "a=") == {"a": ""}
    platform.aliquot("package", "delete", "utils", "--yes")


# --- activations -----------------------------------------------------------------------------------------


def test_activations_are_listed_read_and_counted(platform):
    before = platform.json("activation", "list", "echo", "--count")["activations"]
    begun_ms = time.time_ns() // 10**6
    for number in range(2):
        invoke(platform, "echo", "-p", "n", number)
    assert platform.aliquot("activation", "list", "echo", "--count").strip() == str(before + 2)
    listed = platform.json("activation", "list", "echo", "--limit", 2, "--since", begun_ms)
    assert len(listed) == 2
    assert platform.json("activation", "list", "echo", "--since", "1h", "--upto", "2020-01-01T00:00") == []
    assert re.search(rf"echo +ok +\w+ .*{listed[0]['activationId']}", platform.aliquot("activation", "list"))
    assert json.loads(platform.aliquot("activation", "result")) == {"n": 1}
    assert platform.json("activation", "result", listed[1]["activationId"]) == {
        "result": {"n": 0}, "success": True, "status": "success", "size": 7
    }  # fmt: skip
    shown = platform.aliquot("activation", "get")
    assert "echoing" in shown
    assert re.search(r"status +ok *\n", shown)
    assert "echoing" in platform.aliquot("activation", "logs", listed[0]["activationId"])


def test_failed_and_slow_calls_are_found(platform):
    (platform.folder / "fails.py").write_text("def main(args):\n    print('why')\n    return {'error': args['why']}\n")
    platform.aliquot("action", "create", "fails", "fails.py")
    platform.aliquot("invoke", "fails", "-p", "why", "bad", code=1)
    (failed,) = platform.json("activation", "list", "fails", "--failed")
    assert platform.json("activation", "list", "--slowest", "--limit", 1)
    assert platform.aliquot("activation", "list", "echo", "--failed").strip() == "there are no such calls"
    assert failed["activationId"] in platform.aliquot("logs", "--failed", "fails")
    figures = platform.json("latency", "fails")
    assert (figures["calls"], figures["cold"], figures["failed"]) == (1, 1, 1)
    assert set(figures["milliseconds"]) >= {"run", "whole"}
    assert re.search(r"fails: 1 call, 1 cold, 1 failed *\n +p50", platform.aliquot("latency", "fails"))
    assert "there is no function nothing" in platform.aliquot("latency", "nothing", code=5)
    measured = platform.json("latency", "fails", "--measure", 3, "-p", "why", "bad")
    assert (measured["calls"], measured["failed"]) == (3, 3)
    parts = measured["milliseconds"]
    assert 0 < parts["way"]["p50"] < parts["whole"]["p50"]
    assert "say how many, such as --measure 20" in platform.aliquot("latency", "fails", "-p", "why", "bad", code=2)


def test_a_call_that_runs_is_cancelled(platform):
    (platform.folder / "slow.py").write_text("import time\ndef main(args): time.sleep(60)\n")
    platform.aliquot("action", "create", "slow", "slow.py")
    activation = platform.aliquot("action", "invoke", "slow", "--no-wait").strip()
    assert platform.json("activation", "cancel", activation) == {"activationId": activation}
    assert platform.json("activation", "get", activation, "--wait")["response"]["success"] is False


def test_a_run_is_followed_line_by_line(platform):
    (platform.folder / "steps.py").write_text(
        "import time\ndef main(args):\n    print('one')\n    time.sleep(args.get('s', 0))\n    print('two')\n"
        "    return {'done': True}\n"
    )
    platform.aliquot("action", "create", "steps", "steps.py")
    process = platform.begin("aliquot", "invoke", "steps", "--follow")
    out, err = process.communicate()
    assert json.loads(out) == {"done": True}
    assert re.search(r"stdout: one\n.*stdout: two\n.*ran", err, re.DOTALL)
    activation = platform.aliquot("invoke", "steps", "-p", "s", 30, "--no-wait").strip()
    process = platform.begin("aliquot", "logs", activation, "--follow")
    assert process.stdout.readline().endswith("stdout: one\n"), "before it has ended"
    platform.aliquot("activation", "cancel", activation)
    out, _ = process.communicate()
    assert re.match(rf"steps cancelled .*{activation}", out)
    ended = platform.json("logs", activation, "--follow")
    assert ended["response"]["success"] is False
    assert "there is no function step; did you mean steps?" in platform.aliquot("invoke", "step", "--follow", code=5)


def test_poll_shows_calls_as_they_end(platform):
    process = platform.begin("aliquot", "activation", "poll", "echo", "--json")
    with platform.repeating("invoke", "echo", "-p", "n", 99):
        assert json.loads(process.stdout.readline())["response"]["result"] == {"n": 99}
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


# --- the rest --------------------------------------------------------------------------------------------


def test_wskprops_tells_where_the_platform_is(platform, tmp_path):
    lines = [f"APIHOST={platform.url}", f"AUTH={platform.key}", "NAMESPACE=_"]
    assert platform.aliquot("wskprops").splitlines() == lines
    file = tmp_path / "props"
    file.write_text("AUTH=old\nAPIGW_ACCESS_TOKEN=kept\n")
    platform.aliquot("wskprops", "--write", "--file", file)
    assert file.read_text().splitlines() == ["APIGW_ACCESS_TOKEN=kept", *lines]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert platform.json("wskprops", "--write", WSK_CONFIG_FILE=str(file)) == {"written": str(file)}
    assert "cannot be written" in platform.aliquot("wskprops", "--write", "--file", tmp_path / "no" / "props", code=2)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("action", "create", "x"), 2, "FILE: there is nothing to run; give a file, --sequence or --docker"),
        (("action", "create", "x", "nothing.py"), 2, "nothing.py cannot be read: No such file"),
        (
            ("action", "create", "x", "echo.py", "--web", "maybe"),
            2,
            "--web: 'maybe' is not known; it takes true, raw or",
        ),
        (("action", "create", "x", "echo.py", "--sequence", "echo"), 2, "FILE: a sequence has none"),
        (
            ("action", "create", "x", "empty"),
            2,
            "empty: the folder has no __main__.py (Python), package.json or index.js",
        ),
        (("action", "create", "no-such/x", "echo.py"), 5, "no-such/x: "),
        (("action", "create", "x", "echo.py", "-p", "a"), 2, "--param: 'a' is not of the form name=value"),
        (
            ("action", "create", "a//b", "echo.py"),
            2,
            "'a//b' is not a name; it takes name, package/name or /namespace/",
        ),
        (("action", "create", "x", "echo.py", "-m", "1"), 6, "memory size 1 MB below allowed threshold of 128 MB"),
        (("action", "get", "ech"), 5, "there is no function ech; did you mean echo?"),
        (
            ("action", "get", "echo", "--url"),
            2,
            "echo is not on the web; aliquot action update echo --web true puts it",
        ),
        (("package", "get", "nowhere"), 5, "there is no package nowhere"),
        (("package", "bind", "/guest", "x"), 2, "PACKAGE: '/guest' is not one"),
        (("package", "bind", "nowhere", "x"), 6, "x: Binding references a package that does not exist."),
        (("package", "list", "guest"), 2, "NAMESPACE: 'guest' is not one; it takes /guest"),
        (("trigger", "fire", "nobody"), 5, "there is no trigger nobody"),
        (("rule", "create", "r", "nobody", "echo"), 6, "does not exist"),
        (("rule", "enable", "nobody"), 5, "there is no rule nobody, nor any other; `aliquot rule create` makes one"),
        (("activation", "get", "0" * 32), 5, f"activation {'0' * 32}: it does not exist"),
        (("activation", "cancel", "abc"), 6, "abc: this is not an id, which has 32 hexadecimal digits"),
        (("activation", "list", "--since", "soon"), 2, "--since: 'soon' is not a time"),
        (("activation", "list", "--since", "2026-99-01"), 2, "--since: '2026-99-01' is not a time, such as 2026-01-31"),
    ],
)
def test_mistakes_are_named_with_what_to_do(platform, arguments, code, told):
    (platform.folder / "empty").mkdir(exist_ok=True)
    assert told in complaint(platform.aliquot(*arguments, "--json", code=code))


def test_the_shell_completes_names_of_every_kind(platform):
    platform.aliquot("trigger", "create", "complete-me")
    words = {"COMP_WORDS": "aliquot trigger fire comp", "COMP_CWORD": "3", "_ALIQUOT_COMPLETE": "complete_bash"}
    assert platform.aliquot(**words).split() == ["complete-me"]


def test_deleting_asks_first(platform):
    platform.aliquot("trigger", "create", "asked")
    platform.aliquot("trigger", "delete", "asked", given="n\n", code=1)
    assert "deleted asked" in platform.aliquot("trigger", "delete", "asked", given="y\n")
