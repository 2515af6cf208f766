"""The page on kernel graphs does what it says, on real PoCL."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import DOCS, EXAMPLES

from aliquot.testing.server import LiveServer

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="PoCL links with ld, of the package binutils")
PAGE = DOCS / "how-to" / "kernels.md"


@pytest.fixture
def server(tmp_path):
    with LiveServer(tmp_path / "data", "--devices", "host:1") as running:
        yield running


def test_the_commands_of_the_page_print_what_it_says(tmp_path, server):
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "bin").mkdir()
    for name, command in (("aliquot", f"{sys.executable} -m aliquot"), ("python3", sys.executable)):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "POCL_CACHE_DIR": str(tmp_path)}
    environment["ALIQUOT_DATA"] = str(server.data)
    said = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(said) >= 16
    for command, expected in said:
        run = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert run.stdout == expected, run.stderr
    assert Path(tmp_path / "out" / "blurred.npy").is_file()
