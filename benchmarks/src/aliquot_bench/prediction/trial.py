"""Score the predictors on the sessions of one set that they have not seen, and time their predictions."""

import time
from collections.abc import Sequence

from msgspec import Struct

from aliquot.learn.choosing import SIMPLEST_FIRST
from aliquot.learn.lstm import LstmError
from aliquot.learn.model import evaluate_predictions
from aliquot.learn.parts import NETWORK, TABLES, VOCABULARY
from aliquot.learn.predictor import Predictor
from aliquot.learn.scoring import THETA, HeldOutStep, Score, held_out_steps, score
from aliquot_bench.prediction.sets import RecordedSet
from aliquot_bench.prediction.trained import TrainedSet

_NEEDS = {"popular": (TABLES,), "markov1": (TABLES,), "markov2": (TABLES,), "lstm": (NETWORK, VOCABULARY)}
_BLEND = (TABLES, NETWORK, VOCABULARY)
_TIMED_PREDICTIONS = 1000
_LIKELY_QUERIES = 600


class PredictorResult(Struct, frozen=True):
    """The score of one predictor, the time of a prediction, and its size on disk."""

    score: Score
    p50_s: float
    p99_s: float
    bytes: int


class LikelyFiles(Struct, frozen=True):
    """Files predicted for the rest of a session with a probability above theta, and the part that was opened."""

    predicted: int
    opened_share: float | None
    seconds: float  # mean of one query


class SetResult(Struct, frozen=True):
    """The results of all predictors on one set."""

    name: str
    training_sessions: int
    test_sessions: int
    winner: str
    predictors: dict[str, PredictorResult]
    likely: LikelyFiles
    without: str  # the reason why there is no network

    @property
    def shortfall(self) -> float:
        """Return how many points the chosen predictor is below the best single one, in top-1 or top-5."""
        return max(self.shortfall_top1, self.shortfall_top5)

    @property
    def shortfall_top1(self) -> float:
        chosen = self.predictors[self.winner].score
        return 100 * (max(one.top1 for one in self._singles) - chosen.top1)

    @property
    def shortfall_top5(self) -> float:
        chosen = self.predictors[self.winner].score
        return 100 * (max(one.top5 for one in self._singles) - chosen.top5)

    @property
    def _singles(self) -> list[Score]:
        return [one.score for name, one in self.predictors.items() if name != "blend"]


def run(recorded: RecordedSet, trained: TrainedSet, max_places: int) -> SetResult:
    """Score each predictor on at most `max_places` accesses."""
    held_out = held_out_steps(recorded.test, max_places)
    marks = frozenset(step.file for step in trained.parts.tables.steps if step.is_mark)
    found = {}
    for name in SIMPLEST_FIRST:
        try:
            predictor = trained.parts.predictor(name) if name != "blend" or trained.manifest.weights else None
        except LstmError:
            predictor = None
        if predictor is not None:
            times = _times(predictor, held_out)
            files = _BLEND if name == "blend" else _NEEDS.get(name, ())
            size = sum(trained.sizes.get(file, 0) for file in files)
            found[name] = PredictorResult(
                score(predictor, held_out, marks), times[len(times) // 2], times[-len(times) // 100], size
            )
    manifest = trained.manifest
    return SetResult(
        recorded.name, len(recorded.training), len(recorded.test), manifest.winner, found,
        _likely(recorded, trained), manifest.without,
    )  # fmt: skip


def _times(predictor: Predictor, held_out: Sequence[HeldOutStep]) -> list[float]:
    """Return the times of single predictions, sorted."""
    every = max(1, len(held_out) // _TIMED_PREDICTIONS)
    for step in held_out[: 5 * every : every]:
        predictor.predict(step.history)
    times = []
    for step in held_out[::every]:
        began = time.perf_counter()
        predictor.predict(step.history)
        times.append(time.perf_counter() - began)
    return sorted(times)


def _likely(recorded: RecordedSet, trained: TrainedSet) -> LikelyFiles:
    model = trained.parts.model(trained.manifest.winner, trained.manifest)
    began = time.perf_counter()
    answers = evaluate_predictions(model, recorded.test, _LIKELY_QUERIES)
    seconds = (time.perf_counter() - began) / _LIKELY_QUERIES
    sure = [was_opened for probability, was_opened in answers if probability > THETA]
    return LikelyFiles(len(sure), sum(sure) / len(sure) if sure else None, seconds)
