"""The interface of predictors: from a history of steps, predict the next ones with probabilities."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from aliquot.learn.steps import History

MAX_GUESSES = 32  # maximum number of guesses in one prediction


class Guess(NamedTuple):
    """A step that may come next."""

    file: str  # or the name of a mark, as in its `AccessStep`
    probability: float


class Predictor(Protocol):
    """Predicts the next step of a session. Implementations are immutable and thread-safe."""

    name: str

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        """Return guesses for the next step, most likely first. The rest up to 1 is for other steps and the end."""
        ...

    def predict_many(self, histories: Sequence[History], top: int = MAX_GUESSES) -> list[list[Guess]]:
        """Predict for many histories at once, which may be faster."""
        ...


class SequentialPredictor:
    """A base class for predictors that gain nothing from predicting many at once."""

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        raise NotImplementedError

    def predict_many(self, histories: Sequence[History], top: int = MAX_GUESSES) -> list[list[Guess]]:
        return [self.predict(history, top) for history in histories]


class NullPredictor(SequentialPredictor):
    """The predictor `none`, which predicts nothing. Another predictor serves only if it is better."""

    name = "none"

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        return []
