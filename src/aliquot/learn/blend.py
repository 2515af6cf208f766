"""The predictor `blend`: a weighted mixture of others, with weights fitted on held-back sessions."""

from collections.abc import Sequence

from aliquot.learn.predictor import MAX_GUESSES, Guess, Predictor
from aliquot.learn.scoring import HeldOutStep
from aliquot.learn.steps import History

_ROUNDS = 40
_UNNAMED = 1e-5  # assumed probability of a file that a predictor does not name


class BlendPredictor:
    """Adds the weighted probabilities of its parts."""

    name = "blend"

    def __init__(self, parts: Sequence[Predictor], weights: Sequence[float]) -> None:
        self.parts = tuple(parts)
        self.weights = tuple(weights)

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        return self.mixed([part.predict(history) for part in self.parts], top)

    def predict_many(self, histories: Sequence[History], top: int = MAX_GUESSES) -> list[list[Guess]]:
        answers = [part.predict_many(histories) for part in self.parts]
        return [self.mixed(together, top) for together in zip(*answers, strict=True)]

    def mixed(self, predictions: Sequence[Sequence[Guess]], top: int = MAX_GUESSES) -> list[Guess]:
        """Combine one prediction of each part."""
        likely: dict[str, float] = {}
        for guesses, weight in zip(predictions, self.weights, strict=True):
            for file, probability in guesses:
                likely[file] = likely.get(file, 0.0) + weight * probability
        best = sorted(likely.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
        return [Guess(file, probability) for file, probability in best]


def fit_weights(answers: Sequence[Sequence[Sequence[Guess]]], held_out: Sequence[HeldOutStep]) -> list[float]:
    """Fit the weights that make the opened files most likely, by expectation maximisation.

    `answers` holds the predictions of each part.
    """
    rows = list(zip(*(_probabilities(part, held_out) for part in answers), strict=True))
    weights = [1 / len(answers)] * len(answers)
    for _ in range(_ROUNDS if rows else 0):
        sums = [0.0] * len(answers)
        for row in rows:
            shares = [weight * probability for weight, probability in zip(weights, row, strict=True)]
            total_share = sum(shares)
            for number, share in enumerate(shares):
                sums[number] += share / total_share
        weights = [total / len(rows) for total in sums]
    return weights


def _probabilities(answers: Sequence[Sequence[Guess]], held_out: Sequence[HeldOutStep]) -> list[float]:
    """Return the probabilities that a part gave to the opened files."""
    return [
        max(_UNNAMED, next((guess.probability for guess in guesses if guess.file == step.file), 0.0))
        for guesses, step in zip(answers, held_out, strict=True)
    ]
