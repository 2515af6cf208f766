"""The examples do what their READMEs say: the commands are taken from the page, run, and their output compared."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from live_platform import QuickPlatform
from places import ROOT

HOW_TO_NAMES = (
    "first-function", "groups", "models", "schedules", "secrets", "serve-a-model", "streaming", "volumes",
    "workflows",
)  # fmt: skip
HOW_TOS = [ROOT / "docs" / "how-to" / f"{name}.md" for name in HOW_TO_NAMES]
PAGES = [*sorted((ROOT / "examples").glob("*/README.md")), *HOW_TOS]


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform"), "--python", sys.executable) as platform:
        yield platform


def same_but_percentages(text):
    """Another processor rounds differently, and a percentage may be another."""
    return re.sub(r"\b\d+%", "N%", text)


def commands_of(page):
    """Return the commands of a page. A line that ends with a backslash continues."""
    text = re.sub(r"\\\n +", "", page.read_text(encoding="utf-8"))
    return re.findall(r"^ {4,}((?:aliquot|python|curl) .*)$", text, re.MULTILINE)


def run_curl(platform, command):
    """Run a line of the page in a shell, with the address and the key as the page says."""
    environment = {**os.environ, "ALIQUOT_URL": platform.url, "ALIQUOT_KEY": platform.key}
    words = ["bash", "-c", command.replace("curl", "curl -sS --fail-with-body", 1)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout + "\n"


def test_the_curl_line_of_the_readme_calls_a_function(platform):
    (line,) = (command for command in commands_of(ROOT / "README.md") if command.startswith("curl "))
    platform.aliquot("deploy", str(ROOT / "examples" / "matrix" / "matrix.py"))
    assert json.loads(run_curl(platform, line))["value"] > 0


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_the_page_is_true(page, platform, tmp_path):
    folder = tmp_path / page.parent.name
    if page.name == "README.md":
        shutil.copytree(page.parent, folder, ignore=shutil.ignore_patterns("weights.npz", "__pycache__"))
    else:
        folder.mkdir()
    files = r"`(\w+\.(?:py|yaml|env))`:\n\n```(?:python|yaml|ini)\n(.*?)```"
    for name, code in re.findall(files, page.read_text(encoding="utf-8"), re.DOTALL):
        (folder / name).write_text(code)
    commands = commands_of(page)
    assert commands
    printed = {"aliquot": "", "python": ""}
    for command in commands:
        if command.startswith("curl "):
            printed["python"] += run_curl(platform, command)
            continue
        words, _, target = command.partition(" > ")
        program, *arguments = shlex.split(words)
        given = "asked for" if "HF_TOKEN" in words else None  # a terminal asks for it
        out = platform.run(program, *arguments, cwd=folder, given=given)
        if target:
            (folder / target).write_text(out)
        else:
            printed[program] += out
    for block in blocks(page, "text"):
        assert same_but_percentages(block) in same_but_percentages(printed["python"])
    for block in blocks(page, "json"):
        assert block in printed["aliquot"]
