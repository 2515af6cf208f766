"""The page on whisk.system: its commands are run, and it names all that there is."""

import re
import shlex

import pytest
from live_platform import QuickPlatform
from places import DOCS

from aliquot.live.catalogue.system.contents import PACKAGES
from aliquot.testing.waiting import wait_until

PAGE = (DOCS / "reference" / "system-packages.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("page")) as platform:
        yield platform


def commands(block):
    """Pairs of a command's words and what it prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        yield shlex.split(line)[1:], printed


def test_the_examples_print_what_the_page_says_and_the_trigger_fires(platform):
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        for words, printed in commands(block):
            out = platform.aliquot(*words)
            assert not printed or out == printed
    seen = wait_until(lambda: platform.json("activation", "list", "utils/echo"), what="the alarm's first activation")
    result = platform.json("activation", "result", seen[0]["activationId"])
    assert result["result"] == {"name": "Odin"}
    platform.aliquot("trigger", "delete", "tick", "--yes")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_action_is_on_the_page_with_its_parameters(package):
    for action in package.actions:
        row = re.search(rf"^\| `{package.name}/{action.name}` \|(.*?)\|", PAGE, re.MULTILINE)
        assert row, action.name
        for parameter in action.parameters:
            if package.name == "alarms" or parameter["name"] in {"lines", "num", "path", "web", "ext"}:
                assert f"`{parameter['name']}`" in row[1]
