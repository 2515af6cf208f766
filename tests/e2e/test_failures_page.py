"""The page on failed calls does what it says: its lines are taken from it and run on a server."""

import json
import re

import pytest
from live_platform import QuickPlatform
from pages import DocumentPage

from aliquot.cli.logs import OPENWHISK_REMARK
from aliquot.testing.waiting import wait_until

PAGE = DocumentPage("how-to/failures.md")


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform")) as platform:
        (platform.folder / "trouble.py").write_text(PAGE.blocks("python")[0])
        yield platform


@pytest.fixture(scope="module")
def failed(platform):
    """The lines that the page's failing calls print, by function."""
    said = PAGE.section("What the command line says")
    deploy, *calls = said.commands()
    platform.aliquot(*deploy)
    return {words[1]: platform.aliquot(*words, code=1).splitlines()[-1] for words in calls}


def test_each_failure_is_told_as_on_the_page(failed):
    for line in PAGE.section("What the command line says").blocks("text")[0].splitlines():
        name = line.split()[1].removesuffix(":")
        pattern = re.escape(line).replace("…", "[0-9a-f]{32}").replace(r"128\ MiB\ of", r"1[23]\d\ MiB\ of")
        assert re.fullmatch(pattern, failed[name]), failed[name]
    assert len(failed) == 4


def test_openwhisks_words_stay_in_the_record(failed, platform):
    record = platform.json("activation", "get", failed["trouble.leave"].split()[-1])
    assert record["response"]["status"] == "action developer error"
    assert record["response"]["result"]["error"].startswith("The action did not produce a valid response")
    notes = {pair["key"]: pair["value"] for pair in record["annotations"]}
    assert notes["failure"] == "exited with code 3"
    assert any(line.endswith(OPENWHISK_REMARK) for line in record["logs"])


@pytest.mark.usefixtures("failed")
def test_failed_and_slow_calls_are_found(platform):
    by_failure, by_time, logs, of_one, where = PAGE.section("Find failed and slow calls").commands()
    listed = platform.aliquot(*by_failure)
    for words in ("error", "timed out after 1 s", "exited with code 3"):
        assert words in listed
    assert "wait" in listed.splitlines()[0]
    assert platform.json(*by_time)[0]["name"] in {"trouble.slow", "trouble.greedy"}
    shown = platform.aliquot(*logs)
    assert "error: exited with code 3" in shown
    assert OPENWHISK_REMARK not in shown
    assert "dividing 1 by 0" in platform.aliquot(*of_one)
    assert "1 failed" in platform.aliquot(*where)


@pytest.mark.usefixtures("failed")
def test_a_program_gets_the_exception_itself(platform):
    process = platform.begin("python", "trouble.py")
    out, err = process.communicate()
    assert out == PAGE.section("What a program sees").blocks("text")[0], err


def status(platform):
    return platform.operate("GET", "status")


def test_a_call_that_ended_with_the_server_says_so_and_names_the_way_out(platform):
    (platform.folder / "long.py").write_text("import time\ndef main(args):\n    time.sleep(50)\n")
    platform.aliquot("action", "create", "long", "long.py")
    accepted = platform.aliquot("invoke", "long", "--no-wait").strip()
    wait_until(
        lambda: ("long", "busy") in {(row["function"], row["state"]) for row in status(platform)["sandboxes"]},
        what="the call to run, and not only its sandbox to start",
    )
    platform.process.kill()
    platform.process.wait()
    platform.start()
    platform.aliquot("activation", "get", accepted, "--wait")
    shown = platform.aliquot("logs", accepted)
    assert "error: interrupted: the server stopped while the action ran" in shown
    assert "rerun=True" in shown
    assert json.loads(platform.aliquot("activation", "list", "--failed", "--count")) >= 1
