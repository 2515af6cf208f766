"""Simulated predictors of the next files: none, learned during the run, or clairvoyant."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

from aliquot.core.events import LikelyFile
from aliquot.core.prefetching.records import AudienceKey, FileKey, audience_of
from aliquot.learn.later import LaterPredictor, count_later
from aliquot.learn.markov import MarkovPredictor, PopularPredictor
from aliquot.learn.model import PredictionModel
from aliquot.learn.predictor import Predictor
from aliquot.learn.steps import AccessStep, Session, begin, call, seen_until
from aliquot.learn.tables import Tables, count
from aliquot.sim.arrivals import Arrival
from aliquot.sim.fabric.storage import file_key

MAX_PREDICTED_FILES = 32  # limit of the clairvoyant predictor
RETRAIN_GROWTH = 1.1  # train again when the number of opens has grown by this factor
MIN_OPENS = 8  # opens before the first training


def caller_of(arrival: Arrival) -> AudienceKey:
    """Return the audience to which the call belongs."""
    return (arrival.tenant, audience_of(arrival.session, arrival.function))


class FilePredictor(ABC):
    """Observes sessions, calls and opens, and predicts the next files."""

    def session_began(self, audience: AudienceKey) -> None:
        """Record the start of a session."""

    def call_started(self, arrival: Arrival) -> None:
        """Record the start of a call, which has not opened any file yet."""

    def file_opened(self, audience: AudienceKey, key: FileKey, size: int) -> None:
        """Record that a call has opened a file."""

    @abstractmethod
    def next_files(self, audience: AudienceKey, function: str) -> list[LikelyFile]:
        """Predict the next files of an audience, the most likely first.

        `function` is a function that was just called and has not run yet, or empty.
        """


class NoPredictor(FilePredictor):
    """Predicts no files at all."""

    def next_files(self, audience: AudienceKey, function: str) -> list[LikelyFile]:
        return []


class ClairvoyantPredictor(FilePredictor):
    """Knows all future opens in order, as the upper bound of all predictors."""

    def __init__(self, workload: Iterable[Arrival], sizes: dict[FileKey, int]) -> None:
        self._sizes = sizes
        self._future: dict[AudienceKey, dict[FileKey, int]] = {}  # number of future opens, in order of the first one
        for arrival in workload:
            future = self._future.setdefault(caller_of(arrival), {})
            for name in arrival.reads:
                key = file_key(name)
                future[key] = future.get(key, 0) + 1

    def file_opened(self, audience: AudienceKey, key: FileKey, size: int) -> None:
        future = self._future[audience]
        times = future.pop(key) - 1
        if times:
            future[key] = times

    def next_files(self, audience: AudienceKey, function: str) -> list[LikelyFile]:
        keys = list(self._future.get(audience, {}))[:MAX_PREDICTED_FILES]
        return [LikelyFile(*key, self._sizes[key], 1.0) for key in keys]


class LearnedPredictor(FilePredictor):
    """Learns from the sessions of the run so far, as the storage agent does."""

    def __init__(self, make: Callable[[Tables], Predictor]) -> None:
        self._make = make
        self._sessions: list[Session] = []
        self._current: dict[AudienceKey, Session] = {}
        self._steps: dict[str, AccessStep] = {}
        self._opens = self._trained_opens = 0
        self._model: PredictionModel | None = None

    def session_began(self, audience: AudienceKey) -> None:
        self._begin(audience, begin(audience[0]))

    def call_started(self, arrival: Arrival) -> None:
        audience, step = caller_of(arrival), call(arrival.tenant, arrival.function)
        if arrival.session is None or audience not in self._current:
            self._begin(audience, step)
        else:
            self._record(audience, step)

    def file_opened(self, audience: AudienceKey, key: FileKey, size: int) -> None:
        self._opens += 1
        self._record(audience, AccessStep("/".join(key), size))

    def next_files(self, audience: AudienceKey, function: str) -> list[LikelyFile]:
        if self._opens >= max(MIN_OPENS, RETRAIN_GROWTH * self._trained_opens):
            self._train()
        if self._model is None:
            return []
        history = self._current.get(audience, [])
        if function:
            history = [*history, call(audience[0], function)]
        guesses = self._model.likely(seen_until(history, len(history)))
        return [LikelyFile(*file_key(file), self._steps[file].size, probability) for file, probability in guesses]

    def _begin(self, audience: AudienceKey, step: AccessStep) -> None:
        self._current[audience] = []
        self._sessions.append(self._current[audience])
        self._record(audience, step)

    def _record(self, audience: AudienceKey, step: AccessStep) -> None:
        self._steps[step.file] = step
        self._current[audience].append(step)

    def _train(self) -> None:
        self._trained_opens = self._opens
        later = LaterPredictor(count_later(self._sessions))
        self._model = PredictionModel(self._make(count(self._sessions)), later, self._steps.__getitem__)


LEARNED: dict[str, Callable[[Tables], Predictor]] = {
    "markov1": partial(MarkovPredictor, order=1),
    "markov2": partial(MarkovPredictor, order=2),
    "popular": PopularPredictor,
}
PREDICTORS = ("clairvoyant", *sorted(LEARNED), "none")


def make_predictor(name: str, workload: Iterable[Arrival], sizes: dict[FileKey, int]) -> FilePredictor:
    if name == "clairvoyant":
        return ClairvoyantPredictor(workload, sizes)
    return LearnedPredictor(LEARNED[name]) if name in LEARNED else NoPredictor()
