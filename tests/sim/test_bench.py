"""The fairness benchmark, on a small part of the real traces if they are there."""

from pathlib import Path

import pytest

from aliquot_bench.base import BenchRequest
from aliquot_bench.benches import BENCHES
from aliquot_bench.cli.bench import NAMES
from aliquot_bench.fairness import FairnessBench, cases
from aliquot_bench.fairness import bench as fairness
from aliquot_bench.result import at_least, at_most

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def test_the_commands_help_names_every_benchmark():
    assert NAMES.replace(" or ", ", ").split(", ") == list(BENCHES)


def test_a_goal_is_met_or_it_is_not():
    assert at_most("x", 1, 1).met
    assert not at_most("x", 1.01, 1).met
    assert not at_most("x", None, 1).met
    assert at_least("x", 1, 1, "times").unit == "times, at least"
    assert not at_least("x", 0.99, 1).met


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not at hand")
def test_the_fairness_benchmark_measures_every_set_and_says_every_goal(monkeypatch, tmp_path):
    monkeypatch.setattr(fairness, "SETS", {"azure_functions": 0})
    monkeypatch.setattr(fairness, "DEVICES", (2,))
    bench = FairnessBench(BenchRequest(DATA, quick=True))
    bench._calls = 400
    steps = []
    result = bench.run(steps.append)
    assert len(steps) == bench.steps
    assert any("azure_functions: p99" in goal.name for goal in result.goals)
    assert [rows.title for rows in result.tables][-1].startswith("Ablation")
    assert len(result.tables[0].rows) == len(cases.LOADS) * 6
    bench.draw(tmp_path / "o.png")
    assert (tmp_path / "o.png").stat().st_size > 0
