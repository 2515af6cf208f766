"""The page for those who come from OpenWhisk does what it says: its lines are taken from it and run, in order."""

import re
import shlex
import subprocess
import sys

import pytest
from live_platform import LivePlatform
from places import DOCS

PAGE = (DOCS / "how-to" / "coming-from-openwhisk.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(wsk [^|]*)`[^|]* \| `((?:aliquot|curl) [^|]*)` \|$")
LINE = re.compile(r"^ {4,6}((?:aliquot|curl|eval|python3) .*)$")
ENDLESS = {"aliquot activation poll"}  # until Ctrl-C


def lines():
    found = []
    for text in PAGE.splitlines():
        match = ROW.match(text) or LINE.match(text)
        if match:
            found.append(match.groups()[-1])
    return found


def script():
    """One shell for all, so that what one line sets, the next may use. Before each, its number."""
    steps = ["set -eu", f'aliquot() {{ {shlex.quote(sys.executable)} -m aliquot "$@"; }}']
    for number, line in enumerate(lines()):
        steps.append(f"echo '#{number}'")
        stopped = f"timeout --signal INT 2 {shlex.quote(sys.executable)} -m {line} || test $? = 124"
        steps.append(stopped if line in ENDLESS else line)
    return "\n".join(steps)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """By line: what it printed to stdout."""
    folder = tmp_path_factory.mktemp("platform")
    (folder / "hello.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    with LivePlatform(folder) as platform:
        environment = {**platform.environment, "WSK_CONFIG_FILE": str(folder / "wskprops")}
        ran = subprocess.run(
            ["bash", "-c", script()], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    parts = re.split(r"^#(\d+)\n", ran.stdout, flags=re.MULTILINE)[1:]
    found = {lines()[int(number)]: text for number, text in zip(parts[::2], parts[1::2], strict=True)}
    assert ran.returncode == 0, f"{list(found)[-1]}:\n{ran.stderr}"
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
