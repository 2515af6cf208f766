"""Training of forecasts: stages, drift, scores, comparison on newer rows, and a training that is killed."""

import signal
import subprocess
import sys

import msgspec
import pytest
from killed_steps import child_environment

from aliquot.learn.demand import training as demand_training
from aliquot.learn.demand.calls import CallForecaster
from aliquot.learn.demand.drift import DriftSettings, DriftWatch
from aliquot.learn.demand.evaluation import CallRow, evaluate
from aliquot.learn.demand.features import SeriesPart, training_windows
from aliquot.learn.demand.model import ChoiceSettings, DemandModel
from aliquot.learn.demand.networks import WINDOW, NetworkError, OnnxNetwork
from aliquot.learn.demand.series import Band, ScoredForecast
from aliquot.learn.demand.stage_results import select
from aliquot.learn.demand.stages import STAGES, next_stage
from aliquot.learn.demand.training import DemandLearnSettings, TooFewRowsError, train_demand
from aliquot.learn.demand.versions import (
    CHOSEN,
    DemandCard,
    DemandScore,
    open_version,
    read_version,
    registry_of,
)
from aliquot.learn.registry import BrokenVersionError
from aliquot.learn.version_choice import ModelError, VersionChoice

PATTERN = (1, 1, 9, 1, 5, 1, 7)
PLAIN = DemandLearnSettings(with_lstm=False)


def rows(number, pattern=PATTERN, begin_s=60_000.0, function="f"):
    """Return a call in each step of a minute, with calls at once that follow a pattern."""
    return [CallRow("t", function, begin_s + 60.0 * place, pattern[place % len(pattern)]) for place in range(number)]


def ignore(_):
    """Ignore the progress of a training."""


# --- stages ---------------------------------------------------------------------------------------------------


def test_stages_come_one_after_the_other_and_each_reads_only_earlier_ones():
    done = []
    while (stage := next_stage(done)) is not None:
        assert set(stage.reads) <= set(done)
        done.append(stage.name)
    assert done == ["collect", "features", "train", "evaluate", "select", "deploy"]
    assert [stage.done for stage in STAGES] == sorted(stage.done for stage in STAGES)


def test_a_result_without_the_one_before_it_is_refused():
    with pytest.raises(ValueError, match="train has a result, and features, which comes before it, has none"):
        next_stage(["collect", "train"])


def test_a_single_forecaster_serves_only_if_it_is_clearly_better_than_choosing():
    close = {CHOSEN: DemandScore(loss=0.2), "mean": DemandScore(loss=0.199)}
    clear = {CHOSEN: DemandScore(loss=0.2), "mean": DemandScore(loss=0.15)}
    assert select([close]).winner == CHOSEN
    assert select([clear]).winner == "mean"
    assert select([{CHOSEN: DemandScore(loss=0.3)}, close]).choice == 1


# --- features -------------------------------------------------------------------------------------------------


def test_windows_look_back_but_no_target_is_beyond_its_part():
    values = [float(place) for place in range(100)]
    made = training_windows([SeriesPart(values, 50, 60)], (1, 5), 1000)
    assert len(made.inputs) == 10
    assert all(len(window) == WINDOW for window in made.inputs)
    last = made.targets[-1]
    assert last[0] == last[0]
    assert last[1] != last[1], "the value five steps later is not in this part"
    changed = training_windows([SeriesPart([*values[:60], *[1e9] * 40], 50, 60)], (1, 5), 1000)
    assert msgspec.msgpack.encode(changed) == msgspec.msgpack.encode(made)


def test_windows_without_calls_and_beyond_the_limit_are_left_out():
    assert training_windows([SeriesPart([0.0] * 100, 0, 100)], (1,), 1000).inputs == []
    assert len(training_windows([SeriesPart([1.0] * 500, 0, 500)], (1,), 50).inputs) <= 50


# --- scores ---------------------------------------------------------------------------------------------------


def test_scores_count_only_rows_between_their_borders():
    given = rows(100)
    older, newer = evaluate(given, DemandModel(), 60, [given[40].at_s, given[80].at_s])
    assert older.scores["last"].rows == 40
    assert newer.scores[CHOSEN].rows <= 20
    assert newer.chance.steps > 0


def test_the_chance_of_calls_is_scored_in_steps_without_calls_too():
    given = [CallRow("t", "f", 60_000.0 + 600.0 * place, 1) for place in range(60)]
    (found,) = evaluate(given, DemandModel(), 60, [given[30].at_s])
    assert found.chance.steps > 200
    assert found.chance.event_rate == pytest.approx(0.1, abs=0.02)
    assert found.chance.f1 > 0.8


def test_a_fixed_forecaster_serves_every_series():
    given = rows(100)
    (found,) = evaluate(given, DemandModel(only="mean"), 60, [given[50].at_s])
    assert found.scores[CHOSEN] == found.scores["mean"]


# --- drift ----------------------------------------------------------------------------------------------------


def observe(watch, number, value, middle, *, outside=None, at_s=10.0):
    scored = ScoredForecast(Band(1, middle, middle, middle), outside)
    for _ in range(number):
        watch.demanded(("t", "f"), at_s, value, 0.0, CHOSEN, {CHOSEN: scored})


def test_three_windows_with_a_higher_loss_are_drift_and_fewer_are_not():
    watch = DriftWatch(DriftSettings(rows=10), 1, 0.1, 0.0)
    observe(watch, 20, 10.0, 5.0)
    assert watch.reason() == ""
    observe(watch, 10, 10.0, 10.0)  # a good window between
    observe(watch, 20, 10.0, 5.0)
    assert watch.reason() == ""
    observe(watch, 10, 10.0, 5.0)
    assert watch.reason().startswith("the loss was above 0.12 in 3 windows of 10 rows")
    assert watch.reason() == "", "it is told once"


def test_intervals_that_cover_too_little_or_too_much_are_drift():
    watch = DriftWatch(DriftSettings(rows=10), 1, 0.1, 0.0)
    observe(watch, 30, 10.0, 10.0, outside=True)
    assert "covered 0%" in watch.reason()
    observe(watch, 30, 10.0, 10.0, outside=False)
    assert "covered 100%" in watch.reason()


def test_rows_that_the_version_was_scored_on_are_not_drift():
    watch = DriftWatch(DriftSettings(rows=10), 1, 0.1, after_s=50.0)
    observe(watch, 100, 10.0, 5.0, at_s=50.0)
    assert watch.reason() == ""
    assert watch.watched.rows == 0


def test_enough_rows_without_a_version_begin_a_training():
    watch = DriftWatch(DriftSettings(rows=10, first=25), 0, 0.0, 0.0)
    observe(watch, 24, 1.0, 1.0)
    assert watch.reason() == ""
    observe(watch, 1, 1.0, 1.0)
    assert watch.reason() == "25 steps with calls, and no version yet"


def test_constant_zero_is_no_drift():
    watch = DriftWatch(DriftSettings(rows=10), 1, 0.1, 0.0)
    observe(watch, 100, 0.0, 0.0)
    assert watch.reason() == ""


# --- versions -------------------------------------------------------------------------------------------------


def test_too_few_rows_are_an_answer(tmp_path):
    with pytest.raises(TooFewRowsError, match="it takes 100"):
        train_demand(rows(99), registry_of(tmp_path), PLAIN, ignore)


def test_a_version_that_is_not_better_than_none_does_not_serve(tmp_path):
    registry, told = registry_of(tmp_path), []
    card = train_demand(rows(300, (3,)), registry, PLAIN, told.append)
    assert not card.accepted
    assert card.why.startswith("not better: chosen has the loss")
    assert registry.serving().version == 0
    assert card.without == "networks are switched off"
    assert [progress.what for progress in told][:-1] == [stage.what for stage in STAGES]
    assert list(registry.directory.joinpath("work").iterdir()) == []


def test_versions_are_compared_on_rows_newer_than_both_know(tmp_path, monkeypatch):
    registry = registry_of(tmp_path)
    borders = []

    def noted(*arguments):
        borders.append(arguments[3])
        return evaluate(*arguments)

    first = train_demand(rows(400), registry, PLAIN, ignore)
    registry.serve(first.version)
    monkeypatch.setattr(demand_training, "evaluate", noted)
    second = train_demand(rows(300), registry, PLAIN, ignore)
    assert second.until_s < first.until_s
    assert borders[-2:] == [[first.until_s]] * 2
    assert "not compared" in second.why, "all rows are older than what the first one knows"
    assert not second.accepted


def test_networks_are_trained_chosen_and_win_where_nothing_simple_does(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    registry = registry_of(tmp_path)
    card = train_demand(rows(300), registry, DemandLearnSettings(epochs=3, most_minutes=1), ignore)
    assert card.accepted, card.why
    assert registry.serving().version == 1
    assert {point.network for point in card.curve} == {"gru", "lstm", "transformer"}
    assert min(card.scores[name].loss for name in ("gru", "lstm", "transformer")) < 0.5 * card.scores["median"].loss
    assert all(registry.sizes(1)[f"{name}.onnx"] <= 200_000 for name in ("gru", "lstm", "transformer"))
    model = open_version(registry, 1, "gru")
    assert model.only == "gru"
    forecast = model.networks["gru"].forecast([float(PATTERN[place % 7]) for place in range(WINDOW)])
    assert forecast[1] == pytest.approx(PATTERN[WINDOW % 7], rel=0.3)
    with pytest.raises(BrokenVersionError, match="here they are of 10 s"):
        open_version(registry, 1, step_s=10.0)
    onnx = registry.read(card_of(registry))["gru.onnx"]
    with pytest.raises(NetworkError, match="for \\[1\\] horizons, not these"):
        OnnxNetwork(onnx, (1, 5))
    with pytest.raises(NetworkError, match="cannot load the network"):
        OnnxNetwork(onnx[:1000], (1,))


def card_of(registry):
    return registry.manifest(1)


def test_a_checkpoint_is_taken_up_again(tmp_path):
    pytest.importorskip("torch")
    from aliquot.learn.demand.fitting import FittingBudget, fit_network

    windows = training_windows([SeriesPart([float(PATTERN[place % 7]) for place in range(200)], 0, 200)], (1,), 500)
    checkpoint, first, again = tmp_path / "c.checkpoint", [], []
    fit_network("gru", windows, windows, FittingBudget(2, 60, 1), checkpoint, first.append)
    _, curve = fit_network("gru", windows, windows, FittingBudget(4, 60, 1), checkpoint, again.append)
    assert [point.epoch for point in first] == [1, 2]
    assert [point.epoch for point in again] == [3, 4]
    assert [point.epoch for point in curve] == [1, 2, 3, 4]


def test_the_operators_choice_is_checked(tmp_path):
    registry = registry_of(tmp_path)
    train_demand(rows(300), registry, PLAIN, ignore)
    choice = VersionChoice(registry, ("mean", "gru"), lambda served: read_version(registry, *served_of(served)))
    choice.use(1, "mean")
    assert (registry.serving().version, registry.serving().predictor) == (1, "mean")
    with pytest.raises(ModelError, match="version 1 has no gru"):
        choice.use(1, "gru")
    with pytest.raises(ModelError, match="there is no version 2; there are 1"):
        choice.use(2, None)


def served_of(served):
    return served.version, served.predictor


def test_a_card_of_an_earlier_release_is_read(tmp_path):
    card = DemandCard(version=1, created=0, winner=CHOSEN, accepted=True, why="", scores={})
    registry_of(tmp_path).add(card, {})
    path = registry_of(tmp_path).folder(1) / "manifest.json"
    fields = msgspec.json.decode(path.read_bytes())
    path.write_bytes(
        msgspec.json.encode(
            {name: fields[name] for name in ("version", "created", "winner", "accepted", "why", "scores")}
        )
    )
    assert registry_of(tmp_path).manifest(1).choice == ChoiceSettings()


# --- kills ----------------------------------------------------------------------------------------------------

_TRAINER = """
import os, signal, sys
from pathlib import Path
from test_demand_training import PLAIN, rows
from aliquot.learn.demand.training import train_demand
from aliquot.learn.demand.versions import registry_of

def told(progress):
    print(progress.what, flush=True)
    if progress.what.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

train_demand(rows(300), registry_of(Path(sys.argv[1])), PLAIN, told)
"""


@pytest.mark.parametrize("stage", [STAGES[2], STAGES[5]])
def test_a_killed_training_goes_on_with_the_stage_that_was_not_done(tmp_path, stage):
    command = [sys.executable, "-c", _TRAINER, str(tmp_path), stage.what]
    killed = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    told = []
    card = train_demand(rows(300), registry_of(tmp_path), PLAIN, told.append)
    assert told[0].what == stage.what
    assert card.version == 1
    other = []
    train_demand(rows(301), registry_of(tmp_path), PLAIN, other.append)
    assert other[0].what == STAGES[0].what, "what was learned from other rows is not taken up"


def test_a_full_disk_is_an_error_and_leaves_the_version_that_serves(tmp_path, monkeypatch):
    registry = registry_of(tmp_path)
    train_demand(rows(300), registry, PLAIN, ignore)
    registry.serve(1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demand_training, "write_synced", full)
    with pytest.raises(OSError, match="No space"):
        train_demand(rows(320), registry, PLAIN, ignore)
    assert [card.version for card in registry.versions()] == [1]
    assert open_version(registry, registry.serving().version).only in {"", *registry.manifest(1).scores}


def test_a_forecaster_with_inverted_forecasts_still_covers():
    """Forecasts of a network that are wrong on purpose are not chosen, and bands stay in order."""

    class Inverted:
        window = 4

        def forecast(self, values):
            return {1: 1000.0 - values[-1]}

    class Kept:
        def __init__(self):
            self.models = []

        def demanded(self, key, at_s, value, last, model, made):
            self.models.append(model)

        def stepped(self, key, at_s, chance, *, called):
            pass

    kept = Kept()
    forecaster = CallForecaster(60, DemandModel(networks={"gru": Inverted()}), kept)
    for row in rows(200):
        forecaster.seen((row.tenant, row.function), row.at_s, row.at_once)
    assert set(kept.models[60:]) <= {"last", "mean", "median", "smoothed", "seasonal", "blend"}
    (told,) = forecaster.forecast(60_000.0 + 200 * 60)
    assert 0 <= told.low <= told.middle <= told.high <= 2 * max(PATTERN)
