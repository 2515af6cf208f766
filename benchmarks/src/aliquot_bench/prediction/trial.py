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

    told: int
    came: float | None
    seconds: float  # mean of one query


class SetResult(Struct, frozen=True):
    """The results of all predictors on one set."""

    name: str
    learned: int  # sessions
    tried: int  # sessions
    winner: str
    predictors: dict[str, PredictorResult]
    likely: LikelyFiles
    without: str  # the reason why there is no network

    @property
    def shortfall(self) -> float:
        """Return how many points the chosen predictor is below the best single one, in top-1 or top-5."""
        singles = [one.score for name, one in self.predictors.items() if name != "blend"]
        chosen = self.predictors[self.winner].score
        few = max(one.top5 for one in singles) - chosen.top5
        return 100 * max(max(one.top1 for one in singles) - chosen.top1, few)


def run(recorded: RecordedSet, made: TrainedSet, max_places: int) -> SetResult:
    """Score each predictor on at most `max_places` accesses."""
    asked = held_out_steps(recorded.tried, max_places)
    marks = frozenset(step.file for step in made.parts.tables.steps if step.is_mark)
    found = {}
    for name in SIMPLEST_FIRST:
        try:
            predictor = made.parts.predictor(name) if name != "blend" or made.manifest.weights else None
        except LstmError:
            predictor = None
        if predictor is not None:
            times = _times(predictor, asked)
            files = _BLEND if name == "blend" else _NEEDS.get(name, ())
            size = sum(made.sizes.get(file, 0) for file in files)
            found[name] = PredictorResult(
                score(predictor, asked, marks), times[len(times) // 2], times[-len(times) // 100], size
            )
    manifest = made.manifest
    return SetResult(
        recorded.name, len(recorded.learned), len(recorded.tried), manifest.winner, found,
        _likely(recorded, made), manifest.without,
    )  # fmt: skip


def _times(predictor: Predictor, asked: Sequence[HeldOutStep]) -> list[float]:
    """Return the times of single predictions, sorted."""
    every = max(1, len(asked) // _TIMED_PREDICTIONS)
    for place in asked[: 5 * every : every]:
        predictor.predict(place.history)
    times = []
    for place in asked[::every]:
        begun = time.perf_counter()
        predictor.predict(place.history)
        times.append(time.perf_counter() - begun)
    return sorted(times)


def _likely(recorded: RecordedSet, made: TrainedSet) -> LikelyFiles:
    model = made.parts.model(made.manifest.winner, made.manifest)
    begun = time.perf_counter()
    answers = evaluate_predictions(model, recorded.tried, _LIKELY_QUERIES)
    seconds = (time.perf_counter() - begun) / _LIKELY_QUERIES
    sure = [came for probability, came in answers if probability > THETA]
    return LikelyFiles(len(sure), sum(sure) / len(sure) if sure else None, seconds)
