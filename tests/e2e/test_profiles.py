"""The profiles of functions on a real server: their rows, the advice, a picture and an export."""

import csv
import json

import pytest
from live_platform import QuickPlatform

from aliquot.testing.waiting import wait_until

CODE = """
import time
from pathlib import Path
def main(args):
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        Path("/tmp/part").write_bytes(b"x" * 100_000)
    return {}
"""


@pytest.fixture
def platform(tmp_path):
    with QuickPlatform(tmp_path) as platform:
        yield platform


def test_a_function_that_computes_and_writes_has_a_profile_and_an_export(platform):
    with platform.client() as client:
        client.deploy("writer", CODE)
        for _ in range(4):
            client.result("writer", {})
    found = wait_until(
        lambda: platform.json("profile", "list", "--last", "all"),
        lambda found: found and found[0]["calls"] == 4,
        what="the rows of all calls",
    )
    assert found[0]["function"] == "writer"
    assert found[0]["starts"] == 1
    assert found[0]["written_bytes"] > 1_000_000
    assert found[0]["system_calls"] > 10
    assert found[0]["compute_s"] > 0
    assert found[0]["memory_bytes"] > 1_000_000
    picture, rows = platform.folder / "p.png", platform.folder / "rows.csv"
    platform.aliquot("profile", "show", "writer", "--last", "all", "--plot", picture, "--export", rows)
    assert picture.stat().st_size > 0
    with rows.open() as file:
        exported = list(csv.DictReader(file))
    assert sum(int(row["calls"]) for row in exported) == 4
    whole = json.loads(platform.aliquot("profile", "show", "writer", "--last", "all", "--json"))
    assert whole["summary"]["calls"] == 4
    assert sum(sum(row["grams"].values()) for row in whole["rows"]) >= 2 * 4
    assert "is not in the profiles; take one of: /guest/writer" in platform.aliquot("profile", "show", "no", code=2)
    assert platform.operate("GET", "status")["profiler"]["looks"] > 10
