"""The benchmark of the console with a small journal: the index has all calls, and unmeasured goals are not met."""

from aliquot_bench.console import bench
from aliquot_bench.console.journal import measure_index


def test_a_historian_reads_the_journal_of_the_benchmark(tmp_path):
    found = measure_index(tmp_path, 300)
    assert found.calls == 300
    assert found.read_s > 0
    assert found.base_bytes <= found.peak_bytes


def test_without_a_browser_the_goals_of_the_page_are_not_met():
    goals = bench._page_goals(None)
    assert len(goals) == 6
    assert not any(goal.met for goal in goals)
