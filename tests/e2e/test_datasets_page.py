"""The page on datasets does what it says: its lines are taken from it and run, in order."""

import re
import shlex
import subprocess

import pytest
from live_platform import QuickPlatform
from places import DOCS

PAGE = (DOCS / "how-to" / "datasets.md").read_text(encoding="utf-8")
LAB, USERS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXT = PAGE.replace(LAB, "").replace(USERS, "")
LINES = re.findall(r"^ {4}((?:aliquot|mkdir|head|python|S=|sleep) ?.*)$", TEXT, re.MULTILINE)


def perform(platform, line, names):
    """Run a line as a shell would and return its stdout."""
    if assigned := re.fullmatch(r"(\w)=\$\((.*)\)", line):
        names[assigned[1]] = perform(platform, assigned[2], names).strip()
        return ""
    for name, value in names.items():
        line = line.replace(f"${name}", value)
    program, *arguments = shlex.split(line)
    if program in {"aliquot", "python"}:
        return platform.run(program, *arguments)
    return subprocess.run(["bash", "-c", line], cwd=platform.folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The stdout of each line of the page."""
    folder = tmp_path_factory.mktemp("platform")
    (folder / "lab.py").write_text(LAB)
    (folder / "users.py").write_text(USERS)
    names = {}
    with QuickPlatform(folder) as platform:
        return [(line, perform(platform, line, names)) for line in LINES]


def notes(text):
    return dict(line.split(maxsplit=1) for line in text.splitlines() if len(line.split()) > 1)


def test_every_line_of_the_page_is_one_that_is_run():
    assert [line.strip() for line in TEXT.splitlines() if line.startswith("    ")] == LINES
    assert len(LINES) > 15


def test_the_first_call_had_to_wait_and_the_last_found_its_files_there(printed):
    first, last = (notes(text) for line, text in printed if line == "aliquot activation get")
    assert [first[key].strip() for key in ("opened", "prefetched")] == ["3 fetched", "0 B"]
    assert [last[key].strip() for key in ("opened", "prefetched", "wasted")] == ["3 prefetched", "5 MiB", "0 B"]
    assert "lab/config.json: " in last["prefetchReasons"]


def test_the_commands_say_what_they_did(printed):
    said = dict(printed)
    assert said["aliquot dataset warm lab 'runs/*'"] == "lab: 1 file, 2 MiB, is on the node\n"
    assert said["aliquot dataset evict lab"].startswith("lab: 3 files, 5 MiB, left the node")
    assert said["aliquot dataset remove lab"] == "removed lab\n"
