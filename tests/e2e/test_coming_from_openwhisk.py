"""The page for those who come from OpenWhisk does what it says: its lines are taken from it and run, in order."""

import re
import shlex
import subprocess
import sys

import pytest
from live_platform import QuickPlatform
from places import DOCS

PAGE = (DOCS / "how-to" / "coming-from-openwhisk.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(wsk [^|]*)`[^|]* \| `((?:aliquot|curl) [^|]*)` \|$")
LINE = re.compile(r"^ {4,6}((?:aliquot|curl|eval|python3) .*)$")
PYTHON = shlex.quote(sys.executable)
ENDLESS = {"aliquot activation poll"}  # until Ctrl-C


def lines():
    found = []
    for text in PAGE.splitlines():
        match = ROW.match(text) or LINE.match(text)
        if match:
            found.append(match.groups()[-1])
    return found


class Shell:
    """Runs the page's lines as a shell does. Plain commands run within this process, which is faster."""

    def __init__(self, platform):
        self._platform = platform
        self._variables = {"WSK_CONFIG_FILE": str(platform.folder / "wskprops")}

    def run(self, line):
        """Return what the line prints to stdout."""
        if line in ENDLESS:
            return self._in_bash(f"timeout --signal INT 2 {PYTHON} -m {line} || test $? = 124")
        if line.startswith("aliquot ") and "$" not in line:
            return self._platform.run(*shlex.split(line), **self._variables)
        if line.startswith("eval "):  # the next lines use what it sets
            values = self._in_bash(f'{line}\necho "$APIHOST $AUTH"').split()
            self._variables |= dict(zip(("APIHOST", "AUTH"), values, strict=True))
            return ""
        return self._in_bash(line)

    def _in_bash(self, line):
        script = f'set -eu\naliquot() {{ {PYTHON} -m aliquot "$@"; }}\n{line}'
        environment = {**self._platform.environment, **self._variables}
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self._platform.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{line}:\n{ran.stderr}"
        return ran.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The stdout of each line of the page, by line."""
    folder = tmp_path_factory.mktemp("platform")
    (folder / "hello.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    with QuickPlatform(folder) as platform:
        shell = Shell(platform)
        found = {line: shell.run(line) for line in lines()}
    found["wskprops"] = (folder / "wskprops").read_text()
    return found


def test_every_line_of_the_page_is_one_that_is_run():
    said = re.findall(r"(?<![\w`])`((?:aliquot|curl) [^`…]*)`(?= \|$)|^ +((?:aliquot|curl) .*)$", PAGE, re.MULTILINE)
    assert [a or b for a, b in said] == [line for line in lines() if line.startswith(("aliquot", "curl"))]
    assert len(lines()) > 45


def test_the_lines_say_what_they_should(printed):
    assert '"greeting": "Hi, Ann!"' in printed["aliquot invoke hello -p name Ann"]
    assert '"greeting": "Hi, Bob!"' in printed["aliquot invoke both -p name Bob"]
    assert re.search(r"APIHOST=http://\S+\nAUTH=\S+:\S+\nNAMESPACE=_\n", printed["wskprops"])
    assert '"lines": [\n    "a",\n    "b"\n  ]' in printed["""aliquot invoke utils/sort -p lines '["b","a"]'"""]
    assert re.fullmatch(r"[0-9a-f]{32}\n", printed["aliquot trigger fire uploaded -p name cat.jpg"])
    assert "inactive" in printed["aliquot rule list"]
    assert "0 12 * * *" in printed["aliquot trigger get noon"]
    stream = next(text for line, text in printed.items() if "event-stream" in line)
    assert re.search(r"event: log\nid: 1\ndata: .*greeting None", stream)
    assert "event: result\n" in stream
    assert "guest" in printed['curl -sfu "$AUTH" "$APIHOST/api/v1/namespaces"']


def test_no_row_of_the_table_has_other_words_than_wsk():
    for match in filter(None, map(ROW.match, PAGE.splitlines())):
        wsk, here = (shlex.split(side) for side in match.groups())
        if here[:2] == ["aliquot", wsk[1]]:
            assert here[2] == wsk[2], match[0]
