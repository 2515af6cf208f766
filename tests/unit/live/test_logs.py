"""The lines of the server's log, in both formats."""

import json
import subprocess
import sys

import pytest

from aliquot.core.errors import InputError
from aliquot.logs import choose_log_format

WRITE = """
import logging, sys
import structlog
from aliquot.logs import choose_log_format, set_up_logs
choose_log_format(sys.argv[1])
set_up_logs()
structlog.get_logger("aliquot.test").warning("it failed", activation="a1", trace_id="t1", why="no room")
try:
    raise ValueError("bad luck")
except ValueError:
    structlog.get_logger("aliquot.test").exception("a command failed")
    logging.getLogger("other").exception("another library")
logging.getLogger("other").warning("of %s", "another library")
"""


def written(form):
    done = subprocess.run([sys.executable, "-c", WRITE, form], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_each_line_is_an_object():
    lines = [json.loads(line) for line in written("json")]
    assert [list(line)[:3] for line in lines] == [["timestamp", "level", "event"]] * 4
    assert [line["event"] for line in lines] == [
        "it failed", "a command failed", "another library", "of another library",
    ]  # fmt: skip
    assert (lines[0]["activation"], lines[0]["trace_id"], lines[0]["why"]) == ("a1", "t1", "no room")
    assert all("ValueError: bad luck" in line["exception"] for line in lines[1:3])


def test_without_a_choice_lines_have_keys_and_values():
    (first, *_) = written("logfmt")
    assert first.startswith("timestamp=")
    assert first.endswith('level=warning event="it failed" activation=a1 trace_id=t1 why="no room"')


def test_another_format_is_refused():
    with pytest.raises(InputError, match="--log-format: 'xml' is no format; it takes logfmt or json"):
        choose_log_format("xml")
