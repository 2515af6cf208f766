"""What all predictors do: from the steps before, say which come next and how likely."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from aliquot.learn.steps import History

MAX_GUESSES = 32  # guesses of one prediction, at most


class Guess(NamedTuple):
    file: str  # or the mark, as in its `Step`
    probability: float


class Predictor(Protocol):
    """Never changes once it is made; may be asked from several threads."""

    name: str

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        """What the very next step is, the most likely first. What is left to 1 is for others, and for the end."""
        ...

    def predict_many(self, histories: Sequence[History], top: int = MAX_GUESSES) -> list[list[Guess]]:
        """As many predictions at once, where that is quicker."""
        ...


class SequentialPredictor:
    """For predictors to which many at once are no quicker."""

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        raise NotImplementedError

    def predict_many(self, histories: Sequence[History], top: int = MAX_GUESSES) -> list[list[Guess]]:
        return [self.predict(history, top) for history in histories]


class NoPredictor(SequentialPredictor):
    """No prediction at all: what every other must be better than to be worth its bytes."""

    name = "none"

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        return []
