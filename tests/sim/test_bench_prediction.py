"""The prediction benchmark: a small run on the recorded sets if they are there, and the table of missing ones."""

from pathlib import Path

import pytest

from aliquot.learn.settings import LearnSettings
from aliquot_bench.base import BenchRequest
from aliquot_bench.prediction import bench, interference, sets, trained
from aliquot_bench.prediction.bench import PredictionBench

DATA = Path(__file__).parents[2].parent / "shared" / "data"
SMALL = {name: sets.SETS[name] for name in ("BMS", "git dask", "starts /app, with calls", "shuffled")}


def few_sessions(data):
    """Return the beginnings of some sessions of three users."""
    users = list(sets.starts_by_user(data).items())[:3]
    return {user: [session[:300] for session in sessions[:6]] for user, sessions in users}


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bench, "SETS", SMALL)
    monkeypatch.setattr(bench.PredictionBench, "steps", 2 * len(sets.TRAINING_PARTS) * len(SMALL) + 1)
    monkeypatch.setattr(bench, "MAX_QUICK_STEPS_OTHERS", 1500)
    monkeypatch.setattr(bench, "_MAX_USER_STEPS", {True: 40})
    monkeypatch.setattr(bench, "MAX_QUICK_PLACES", 100)
    monkeypatch.setattr(interference, "starts_by_user", few_sessions)
    monkeypatch.setattr(trained, "_settings", lambda *_, **__: LearnSettings(with_lstm=False))


@pytest.mark.long
@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded sets are not at hand")
@pytest.mark.usefixtures("small")
def test_every_set_has_its_table_and_its_goals(tmp_path, monkeypatch):
    run = PredictionBench(BenchRequest(DATA, quick=True))
    steps = []
    result = run.run(steps.append)
    assert len(steps) == run.steps
    titles = [rows.title for rows in result.tables]
    assert [title.split(":")[0] for title in titles[: len(SMALL)]] == list(SMALL)
    assert any("Splits by time" in title for title in titles)
    assert any("Eight users" in title for title in titles)
    chosen = [goal for goal in result.goals if "below the best" in goal.name]
    assert len(chosen) == len(sets.TRAINING_PARTS) * len(SMALL) - 1  # a set has too few sessions for one split
    fifa = [goal for goal in result.goals if goal.name.startswith("FIFA")]
    assert [goal.met for goal in fifa] == [False, False]
    run.draw(tmp_path / "o.png")
    assert (tmp_path / "o.png").stat().st_size > 0
    monkeypatch.setattr(trained, "learn", None)  # trained predictors come from the cache
    assert [goal.name for goal in PredictionBench(BenchRequest(DATA, quick=True)).run(steps.append).goals]


@pytest.mark.usefixtures("small")
def test_sets_that_are_not_at_hand_are_named(tmp_path):
    result = PredictionBench(BenchRequest(tmp_path, quick=True), whole=False).run(lambda _: None)
    missing = next(rows for rows in result.tables if rows.title == "Not at hand")
    assert [row[0] for row in missing.rows][: len(SMALL)] == list(SMALL)
    assert all(not goal.met for goal in result.goals)
