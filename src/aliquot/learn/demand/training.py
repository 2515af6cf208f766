"""Train a version of the model of demand: run the stages in order, keep each result, and add the version.

Rows are split by time. Networks learn from the oldest three fifths. The next fifth ends their training and chooses the
settings. The newest fifth gives the scores of the card. The version in use is compared on rows newer than both know.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.durable_files import write_synced
from aliquot.learn.demand.calls import HORIZONS, ApplicationKey, CallForecaster
from aliquot.learn.demand.evaluation import CallRow, Evaluation, evaluate
from aliquot.learn.demand.features import SeriesPart, training_windows
from aliquot.learn.demand.model import ChoiceSettings, DemandModel
from aliquot.learn.demand.networks import NetworkError
from aliquot.learn.demand.series import ScoredForecast
from aliquot.learn.demand.stage_results import CHOICES, Collected, Evaluated, Features, Selected, Trained, select
from aliquot.learn.demand.stages import Stage, next_stage
from aliquot.learn.demand.versions import (
    CHOSEN,
    NETWORKS,
    DemandCard,
    DemandScore,
    file_of,
    open_networks,
    open_version,
)
from aliquot.learn.extra import INSTALL, missing_packages
from aliquot.learn.progress import OnProgress, TrainingProgress
from aliquot.learn.registry import BrokenVersionError, EpochResult, ModelRegistry
from aliquot.learn.settings import LearnSettings

LEARNED, SELECTED = 0.6, 0.8  # parts of the rows before the borders
MIN_ROWS = 100
MIN_WINDOWS = 100  # fewer are not enough to train a network
MIN_COMPARED = 20  # rows newer than both versions
MIN_GAIN, MIN_GAIN_PART = 1e-4, 0.01  # of the loss, so that no draw of ties decides


class TooFewRowsError(Exception):
    """There is too little to learn from. The text gives the required number."""


class DemandLearnSettings(LearnSettings, frozen=True):
    """The settings of one training of the model of demand."""

    step_s: float = 60.0
    reason: str = "the operator asked for it"


def train_demand(
    rows: Sequence[CallRow],
    registry: ModelRegistry[DemandCard],
    settings: DemandLearnSettings,
    on_progress: OnProgress,
) -> DemandCard:
    """Add a version, and serve it if it is better than the one in use. Raises `TooFewRowsError`."""
    if len(rows) < MIN_ROWS:
        raise TooFewRowsError(f"there are {len(rows)} seconds with calls in the profiles; it takes {MIN_ROWS}")
    with registry.training() as work:
        run = DemandTraining(rows[-settings.most_steps :], registry, settings, work, on_progress)
        return run.finish()


class DemandTraining:
    """One training. The results of its stages are files in a folder that is named after what it learns from."""

    def __init__(
        self,
        rows: Sequence[CallRow],
        registry: ModelRegistry[DemandCard],
        settings: DemandLearnSettings,
        work: Path,
        on_progress: OnProgress,
    ) -> None:
        self._rows = rows
        self._registry = registry
        self._settings = settings
        self._work = work
        self._on_progress = on_progress
        self._results: dict[str, Any] = {}
        self._stages: Mapping[str, tuple[type[Struct], Callable[[], Struct]]] = {
            "collect": (Collected, self._collect),
            "features": (Features, self._features),
            "train": (Trained, self._train),
            "evaluate": (Evaluated, self._evaluate),
            "select": (Selected, self._select),
            "deploy": (DemandCard, self._deploy),
        }

    def finish(self) -> DemandCard:
        """Run the stages that have no result, and add the version."""
        self._resume()
        while (stage := next_stage(self._results)) is not None:
            self._on_progress(TrainingProgress(stage.what, stage.done))
            self._keep(stage, self._stages[stage.name][1]())
        card: DemandCard = self._results["deploy"]
        self._registry.add(card, self._results["train"].files)
        if card.accepted and not self._registry.serving().pinned:
            self._registry.serve(card.version)
        self._registry.prune(self._settings.keep_versions)
        self._clean()
        self._on_progress(TrainingProgress(card.why, 1.0))
        return card

    # --- results on disk ----------------------------------------------------------------------------------------

    def _path(self, stage: str) -> Path:
        return self._work / f"{stage}.{self._signature}"

    def _resume(self) -> None:
        """Read the results of a killed training from the same rows, and delete those of others."""
        digest = sha256(msgspec.json.encode([self._settings.step_s, self._settings.epochs, self._settings.with_lstm]))
        digest.update(msgspec.msgpack.encode(list(self._rows)))
        self._signature = digest.hexdigest()[:16]
        for path in self._work.iterdir():
            if self._signature not in path.name:
                path.unlink()
        for name, (kind, _) in self._stages.items():
            if name == "deploy" or not self._path(name).exists():  # what is in use may have changed meanwhile
                return
            self._results[name] = msgspec.msgpack.decode(self._path(name).read_bytes(), type=kind)

    def _keep(self, stage: Stage, result: Struct) -> None:
        draft = self._path(stage.name).with_suffix(f".{self._signature}-draft")
        write_synced(draft, msgspec.msgpack.encode(result))
        draft.rename(self._path(stage.name))
        self._results[stage.name] = result

    def _clean(self) -> None:
        for path in self._work.iterdir():
            path.unlink()

    # --- stages -------------------------------------------------------------------------------------------------

    def _collect(self) -> Collected:
        rows = sorted(self._rows, key=lambda row: (row.at_s, row.tenant, row.function))
        select_s, score_s = (rows[int(part * (len(rows) - 1))].at_s for part in (LEARNED, SELECTED))
        return Collected(rows, select_s, score_s)

    def _features(self) -> Features:
        collected: Collected = self._results["collect"]
        series = series_of(collected.rows, self._settings.step_s)
        learned, held_back = [], []
        for values, times in series.values():
            first, second = (
                sum(at_s <= border for at_s in times) for border in (collected.select_s, collected.score_s)
            )
            learned.append(SeriesPart(values, 0, first))
            held_back.append(SeriesPart(values, first, second))
        most = self._settings.most_steps // 10
        return Features(training_windows(learned, HORIZONS, most), training_windows(held_back, HORIZONS, most // 4))

    def _train(self) -> Trained:
        features: Features = self._results["features"]
        without = _no_networks(features, self._settings)
        if without:
            return Trained(without=without)
        from aliquot.learn.demand.fitting import FittingBudget, fit_network  # noqa: PLC0415 - torch takes seconds

        settings = self._settings
        budget = FittingBudget(settings.epochs, settings.most_minutes * 60 / len(NETWORKS), settings.threads)
        files, curve = {}, []
        for place, name in enumerate(NETWORKS):
            checkpoint = self._work / f"{name}.{self._signature}.checkpoint"
            report = self._reporter(place)
            files[file_of(name)], rounds = fit_network(
                name, features.learned, features.held_back, budget, checkpoint, report
            )
            curve += rounds
        try:
            open_networks(files, HORIZONS)
        except NetworkError as error:
            return Trained(curve=curve, without=str(error))
        return Trained(files, curve)

    def _reporter(self, place: int) -> Callable[[EpochResult], None]:
        def report(point: EpochResult) -> None:
            part = (place + point.epoch / self._settings.epochs) / len(NETWORKS)
            what = (
                f"training {point.network}, round {point.epoch}: error {point.held_back_loss:.3f} on what is held back"
            )
            self._on_progress(TrainingProgress(what, 0.1 + 0.6 * part, point))

        return report

    def _evaluate(self) -> Evaluated:
        collected: Collected = self._results["collect"]
        borders = [collected.select_s, collected.score_s]
        found = [evaluate(collected.rows, self._model(choice), self._settings.step_s, borders) for choice in CHOICES]
        select, newest = ([parts[place].scores for parts in found] for place in range(2))
        return Evaluated(select, newest, found[0][1].chance)

    def _select(self) -> Selected:
        evaluated: Evaluated = self._results["evaluate"]
        return select(evaluated.select)

    def _deploy(self) -> DemandCard:
        collected: Collected = self._results["collect"]
        trained: Trained = self._results["train"]
        evaluated: Evaluated = self._results["evaluate"]
        selected: Selected = self._results["select"]
        scores = evaluated.newest[selected.choice]
        card = DemandCard(
            version=self._registry.next_version(),
            created=now_ms(),
            winner=selected.winner,
            accepted=False,
            why="",
            scores=scores,
            chance=evaluated.chance,
            choice=CHOICES[selected.choice],
            step_s=self._settings.step_s,
            applications=len({(row.tenant, row.function) for row in collected.rows}),
            rows=len(collected.rows),
            held_back=scores[CHOSEN].rows if CHOSEN in scores else 0,
            until_s=collected.score_s,
            newest_s=collected.rows[-1].at_s,
            reason=self._settings.reason,
            curve=tuple(trained.curve),
            without=trained.without,
        )
        return self._compare(card, collected)

    def _compare(self, card: DemandCard, collected: Collected) -> DemandCard:
        """Compare with the version in use, or with the plain forecaster, on rows newer than both know."""
        serving, since_s = self._registry.serving().version, collected.score_s
        before, name = DemandModel(), "no version"
        try:
            before = open_version(self._registry, serving)
            since_s = max(since_s, self._registry.manifest(serving).until_s)
            name = f"version {serving}"
        except BrokenVersionError:
            pass
        own = DemandModel(card.choice, self._model(card.choice).networks, "" if card.winner == CHOSEN else card.winner)
        new, old = (_served(evaluate(collected.rows, model, card.step_s, [since_s])[0]) for model in (own, before))
        if new.rows < MIN_COMPARED:
            return replace(
                card, why=f"not compared: {new.rows} rows are newer than {name} knows; it takes {MIN_COMPARED}"
            )
        accepted = old.loss - new.loss > max(MIN_GAIN, MIN_GAIN_PART * old.loss)
        figures = f"{card.winner} has the loss {new.loss:.4f} against {old.loss:.4f} of {name} on {new.rows} newer rows"
        return replace(card, accepted=accepted, why=f"{'better' if accepted else 'not better'}: {figures}")

    def _model(self, choice: ChoiceSettings) -> DemandModel:
        return DemandModel(choice, open_networks(self._results["train"].files, HORIZONS))


def series_of(rows: Sequence[CallRow], step_s: float) -> dict[ApplicationKey, tuple[list[float], list[float]]]:
    """Return the calls at once of each application in its steps with calls, and their times."""
    found = _SeriesCollector()
    forecaster = CallForecaster(step_s, observer=found)
    for row in rows:
        forecaster.seen((row.tenant, row.function), row.at_s, row.at_once)
    return found.series


class _SeriesCollector:
    """Observes a forecaster, and keeps the values that it is given."""

    def __init__(self) -> None:
        self.series: dict[ApplicationKey, tuple[list[float], list[float]]] = {}

    def demanded(
        self,
        key: ApplicationKey,
        at_s: float,
        value: float,
        last: float,
        model: str,
        made: Mapping[str, ScoredForecast],
    ) -> None:
        values, times = self.series.setdefault(key, ([], []))
        values.append(value)
        times.append(at_s)

    def stepped(self, key: ApplicationKey, at_s: float, chance: float, *, called: bool) -> None:
        """Leave out steps without calls."""


def _served(found: Evaluation) -> DemandScore:
    return found.scores.get(CHOSEN, DemandScore())


def _no_networks(features: Features, settings: LearnSettings) -> str:
    """Return the reason not to train networks, or an empty string."""
    if not settings.with_lstm:
        return "networks are switched off"
    missing = missing_packages()
    if missing:
        return f"{' and '.join(missing)} not installed: {INSTALL}"
    if min(len(features.learned.inputs), 4 * len(features.held_back.inputs)) < MIN_WINDOWS:
        return f"there are fewer than {MIN_WINDOWS} windows of calls to learn from"
    return ""
