"""The page on web actions does what it says: its files are written, its commands typed, its answers compared."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from live_platform import LivePlatform
from places import DOCS

PAGE = DOCS / "reference" / "web-actions.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_of_the_page_print_what_it_says(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", code)[1]
        (tmp_path / name).write_text(code)
    (tmp_path / "aliquot").write_text(f'#!/bin/sh\nexec {sys.executable} -m aliquot "$@"\n')
    (tmp_path / "aliquot").chmod(0o755)
    with LivePlatform(tmp_path) as platform:
        environment = platform.environment | {"URL": platform.url, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", text, re.MULTILINE)
        assert len(said) > 10
        for command, expected in said:
            process = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert process.returncode == 0, process.stderr
            if expected:
                assert process.stdout.rstrip("\n") == expected.rstrip("\n"), command
