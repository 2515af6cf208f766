"""The demonstration's workflow, on a real server."""

import sys

from msgspec.structs import replace
from places import ROOT

from aliquot.cli.loading import load_app
from aliquot.testing.server import LiveServer
from aliquot_bench.demo.workflow import WorkflowResult, show_workflow


def test_the_style_transfer_runs_in_three_tasks(tmp_path, monkeypatch):
    with LiveServer(tmp_path / "data", "--python", sys.executable) as server:  # which has numpy
        monkeypatch.setenv("ALIQUOT_URL", server.url)
        monkeypatch.setenv("ALIQUOT_KEY", server.key)
        load_app(ROOT / "examples" / "workflows" / "style.py", None).deploy()
        shown = show_workflow(server, server.key)
    assert shown.ok, shown.text()
    assert shown.states == ["preprocess", "process", "postprocess"]
    assert "times closer to the style" in shown.text()


def test_what_failed_is_no_success():
    good = WorkflowResult("SUCCEEDED", [], 2.0, 1.0, 0.1)
    assert good.ok
    assert not replace(good, last=3.0).ok
    failed = replace(good, status="FAILED")
    assert not failed.ok
    assert "FAILED" in failed.text()
