"""The page on forecasts: its lines run, and its figures are those of the run."""

import json
import os

from command_line import run_here
from pages import DocumentPage

from aliquot.policies.keepalive.hazard import HazardParams

PAGE = DocumentPage("how-to/forecasts.md")


def test_the_trace_of_the_page_has_the_cold_starts_that_it_tells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = PAGE.blocks("python")
    exec(compile(code, "forecasts.md", "exec"), {})  # noqa: S102 - it is our own page
    for words in PAGE.section("Try it on a trace first").commands():
        done = run_here(*words, cwd=tmp_path, environment=dict(os.environ))
        assert done.code == 0, done.err
    names = ("fixed", "hazard", "counts")
    fixed, hazard, counts = (json.loads((tmp_path / f"{name}.json").read_text())["runs"][0] for name in names)
    assert fixed["cold_starts"] == 144
    assert hazard["cold_starts"] == counts["cold_starts"] == 1
    assert "With a fixed time of ten minutes all 144 calls are cold. With `hazard` only the first is" in PAGE.text


def test_the_page_tells_the_defaults_of_the_policy():
    defaults = HazardParams()
    for name in defaults.__struct_fields__:
        (row,) = (line for line in PAGE.text.splitlines() if line.startswith(f"| `hazard.{name}` |"))
        assert f" {getattr(defaults, name):g}" in row
