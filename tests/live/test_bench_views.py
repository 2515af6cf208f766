"""The views benchmark with small files: it reads every target in every way, and leaves nothing behind."""

from pathlib import Path

import pytest
from sandboxes import strongest

from aliquot_bench.base import BenchRequest
from aliquot_bench.views import bench


@pytest.mark.skipif(not strongest().views, reason="this machine has no views")
def test_the_same_file_is_read_on_the_disk_and_through_both_kinds_of_view(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "QUICK_BYTES", 2**22)
    monkeypatch.setattr(bench, "QUICK_ROUNDS", 2)
    monkeypatch.setattr(bench, "SMALL_FILES", 3)
    steps = []
    views = bench.ViewsBench(BenchRequest(tmp_path, quick=True))
    result = views.run(steps.append)
    assert len(steps) == views.steps
    assert [goal.name.split(":")[0] for goal in result.goals] == ["open, cold", "open, warm", "cat, cold", "cat, warm"]
    assert {row[0] for row in result.tables[0].rows} >= {"the disk itself", "a view, in pieces"}
    assert all(value > 0 for row in result.tables[0].rows for value in row[1:])
    views.draw(tmp_path / "views.svg")
    assert (tmp_path / "views.svg").stat().st_size
    # Views are mounted in the readers' own namespaces. Mounts of other programs come and go meanwhile.
    assert "aliquot-views-" not in Path("/proc/self/mounts").read_text()
