"""`aliquot trace` on the journal of a real server."""

import gzip
import json
import re

import pytest
from live_platform import QuickPlatform
from places import DOCS

PAGE = (DOCS / "how-to" / "trace.md").read_text(encoding="utf-8")


@pytest.fixture
def platform(tmp_path):
    with QuickPlatform(tmp_path) as platform:
        yield platform


def test_the_line_of_the_page_writes_the_calls_of_a_server(platform):
    for _ in range(2):
        platform.aliquot("invoke", "/whisk.system/utils/echo", "-p", "a=1")
    called = [record["activationId"] for record in platform.json("activation", "list")]
    (line,) = re.findall(r"^\$ aliquot (.*)", PAGE, re.MULTILINE)
    said = platform.aliquot(*line.split())
    events = json.loads(gzip.decompress((platform.folder / "trace.json.gz").read_bytes()))["traceEvents"]
    assert "open it with https://ui.perfetto.dev" in said
    runs = {event["args"]["activation"] for event in events if event["ph"] == "X" and event["name"] != "arrived"}
    assert len(called) == 2
    assert set(called) <= runs
    said = platform.aliquot("trace", "--out", "trace.txt", code=2)
    assert "--out: 'trace.txt' has another suffix; it takes .json or .json.gz" in said
