"""The whole demonstration: three tenants on one device, and nothing that stays behind."""

import os
import re
import subprocess
import sys

import pytest
from places import ROOT


@pytest.mark.long
def test_the_demonstration_shows_three_tenants_on_one_device_and_leaves_only_its_pictures(tmp_path):
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    before = sorted(path for path in (ROOT / "examples").rglob("*") if "__pycache__" not in path.parts)
    done = subprocess.run(
        [sys.executable, "-m", "aliquot", "demo", "--seconds", "3", "--out", out],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for tenant in ("shop", "lab", "edge"):
        assert re.search(rf"│ {tenant} .*│ host-1 │", done.stdout), done.stdout
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in out.iterdir()) == ["borrow.png", "demo.png"]
    assert before == sorted(path for path in (ROOT / "examples").rglob("*") if "__pycache__" not in path.parts)
